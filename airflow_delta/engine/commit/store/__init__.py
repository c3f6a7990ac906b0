"""The commit owner that this package brings: it records ratified commits in a commit store."""
