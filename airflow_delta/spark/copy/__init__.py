"""Copy one version of a table: as a Delta clone, or as files of another format."""
