"""The closed loop: the load of a history against ``decide``, in time that is only counted. Pure."""
