"""History through the same ``decide``: what another setting would have done."""
