"""What maintenance has done or would do, for people: the ``to_dict()`` of a result as lines of text.

A plan may name a million files. What ``to_dict()`` has of it are their numbers and bytes, what stays and
why, and up to which version the table can be read and restored afterwards: it stays small however large the
table is, for XCom, jobs and the command line. That of a dry run has the same keys; what wasn't done counts
0, or is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.model.sizes import size_text

__all__ = ["format_report"]


def format_report(report: Mapping[str, Any]) -> list[str]:
    """A report for people: a line for each fact, and for each entry of a list."""
    width = max(map(len, report), default=0)
    lines: list[str] = []
    for key, value in report.items():
        first, *others = _texts(value, key)
        lines.append(f"{key.replace('_', ' '):<{width}}  {first}")
        lines += [f"{'':<{width}}  {text}" for text in others]
    return lines


def _texts(value: Any, key: str) -> list[str]:
    if isinstance(value, list):
        return [_text(entry, key) for entry in value] or ["-"]
    if isinstance(value, Mapping):
        lines = [f"{name.replace('_', ' ')}: {_text(fact, name)}" for name, fact in value.items()]
        return lines or ["-"]
    return [_text(value, key)]


def _text(value: Any, key: str) -> str:
    if isinstance(value, Mapping):
        facts = {name: fact for name, fact in value.items() if fact is not None}
        return ", ".join(
            f"{name.replace('_', ' ')} {_text(fact, name)}" for name, fact in facts.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key.split("_"):
        return size_text(value)
    return "-" if value is None else str(value)
