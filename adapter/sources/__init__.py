"""Several Prometheis behind one adapter (``--sources``): the file, and the open connections."""
