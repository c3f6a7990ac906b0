"""The files of ``_delta_log``: what they are called, which there are, and which make up a version.

From names to a version: `files` reads one name, `listing` reads the directory, `compacted` and
`segment` choose the files that rebuild a version, `last_checkpoint` saves listing the start of the
log, `newest` finds the latest version. `commit_file` and `version_checksum` read the two kinds of
file that say something about one version. Actions are parsed elsewhere (``arrow/``).

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint
File"; managed-commits.md, "Commit Files".
"""
