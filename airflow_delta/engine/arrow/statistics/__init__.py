"""Statistics of files, between JSON text and typed columns."""
