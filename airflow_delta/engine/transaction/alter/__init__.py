"""ALTER TABLE: properties, features, columns, constraints and clustering, one commit each."""
