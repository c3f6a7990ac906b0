"""Log compaction: write a range of commits as one reconciled file."""
