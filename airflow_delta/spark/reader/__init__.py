"""Read one version of a table as a DataFrame."""
