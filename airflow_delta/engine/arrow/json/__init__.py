"""Actions of commits, from JSON lines to Arrow columns."""
