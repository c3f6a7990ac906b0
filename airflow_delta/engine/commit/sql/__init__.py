"""A commit owner whose commit store is a SQL database: SQLite or PostgreSQL."""
