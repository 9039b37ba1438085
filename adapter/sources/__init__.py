"""Several Prometheus servers behind one adapter (``--sources``): the file and the connections."""
