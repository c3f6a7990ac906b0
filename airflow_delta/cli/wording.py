"""Reword the engine's advice for the command line.

The engine's errors, reasons and findings name arguments and methods of its API, such as
``enforce_retention=False`` or ``DeltaTable.checkpoint()``. This module replaces them by options and
subcommands: ``--ignore-retention``, ``airflow-delta checkpoint``. Methods without a subcommand stay.
"""

from __future__ import annotations

import re

__all__ = ["in_cli_words"]

_SUBCOMMANDS = {
    "backfill": "backfill",
    "check": "doctor",
    "checkpoint": "checkpoint",
    "cleanup_metadata": "cleanup",
    "compact_log": "compact-log",
    "convert": "convert",
    "drop_feature": "drop-feature",
    "health": "health",
    "history": "history",
    "optimize": "optimize",
    "restore": "restore",
    "vacuum": "vacuum",
}
"""The subcommands of methods of ``DeltaTable``."""

_OPTIONS = {
    "accept_log": "airflow-delta commits --accept-log",
    "allowed_outside": "--allowed-outside",
    "backfill_first=True": "--backfill-first",
    "enforce_retention=False": "--ignore-retention",
    "files=[…]": "--files-from",
    "force=True": "--force",
    "ignore_missing_files=True": "--ignore-missing-files",
    "partition_schema": "--partition",
    "truncate_history": "--truncate-history",
    "truncate_history=True": "--truncate-history",
}
"""The options of arguments that messages name."""

_LISTED = re.compile(r"allowed_outside=\[(?P<quote>['\"])(?P<location>.*?)(?P=quote)\]")

_METHOD = re.compile(
    rf"\b(?:DeltaTable\.|table\.(?=\w+\())(?P<method>{'|'.join(_SUBCOMMANDS)})\b"
    r"(?:\((?:version=(?P<version>[0-9]+))?\))?(?: or [A-Z]\w+Operator\b)?"
)
# Not inside a path, because a partition column and its value may have such a name.
_ARGUMENT = re.compile(
    rf"(?<![\w/.=-])(?:{'|'.join(sorted(map(re.escape, _OPTIONS), reverse=True))})(?![\w/=-])"
)


def in_cli_words(text: str) -> str:
    """Replace arguments and methods in a text by the command line's options and subcommands.

    Args:
        text: a message, a reason or a remedy.
    """
    text = _LISTED.sub(lambda found: f"--allowed-outside '{found['location']}'", text)
    text = _METHOD.sub(_subcommand, text)
    return _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], text)


def _subcommand(found: re.Match[str]) -> str:
    name, version = _SUBCOMMANDS[found["method"]], found["version"]
    return f"`airflow-delta {name} URI{f' --version {version}' if version else ''}`"
