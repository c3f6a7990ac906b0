"""What a user requests of a table by properties, and what the engine assigns itself."""
