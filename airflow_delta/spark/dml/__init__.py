"""Change rows of a table: find them, and delete, update or merge them."""
