"""The commit store in a SQL database: SQLite or PostgreSQL."""
