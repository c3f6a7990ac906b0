"""The files of ``_delta_log``: what they are called, which there are, and which make up a version.

From names to a version: `files` reads one name, `listing` reads the directory, `compacted` and
`segment` choose the files that rebuild a version, `completeness` says what is missing,
`last_checkpoint` saves listing the start of the log, `newest` finds the latest version. For history and
time travel `commit_run` keeps a log of any length as numbers, and `by_name` asks for its newest commits
without listing. `commit_file` and `version_checksum` read the two kinds of
file that say something about one version. Actions are parsed elsewhere (``arrow/``).

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint
File"; managed-commits.md, "Commit Files".
"""
