"""Which files a table has, needs, lacks and has removed: for vacuum, restore, check and copies."""
