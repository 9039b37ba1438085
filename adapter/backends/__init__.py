"""Other adapters behind us, for external metrics that no rule has (``--external-backends``)."""
