"""What `make` runs: set-up, the demonstration, generated pages."""
