"""The protocol's values: frozen, JSON in and JSON out."""
