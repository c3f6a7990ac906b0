"""Read the actions of commits, which are lines of JSON, into Arrow columns and Python objects."""
