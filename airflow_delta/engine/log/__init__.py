"""The files of ``_delta_log``: their names, their listing, and the log segment of a version.

`files` parses one name, `listing` lists the directory. `compacted` and `segment` choose the files
that rebuild a version, `completeness` finds what is missing. `last_checkpoint` saves readers from
listing the start of the log, `newest` finds the latest version. For history and time travel,
`commit_run` keeps the commits of a long log as arrays of numbers, and `newest_segment` reads its
newest commits without listing. `commit_file` and `version_checksum` read the two kinds of file that
describe one version. Actions are parsed in ``arrow/``.

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint
File"; RFC managed-commits, "Commit Files".
"""
