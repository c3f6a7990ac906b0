"""Find the files that a table has, needs, lacks and has removed; for vacuum, restore, check and copies."""
