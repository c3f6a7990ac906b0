"""Format the ``to_dict()`` of a maintenance result as lines of text for people.

A plan may name a million files. Its ``to_dict()`` has only counts and bytes, what stays and why, and from
which version on the table can be read and restored afterwards. So it stays small, for XCom, jobs and the
command line. That of a dry run has the same keys; what wasn't done is 0 or false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.model.sizes import size_text

__all__ = ["format_report"]


def format_report(report: Mapping[str, Any]) -> list[str]:
    """Format a report: one line for each fact, and for each entry of a list."""
    width = max(map(len, report), default=0)
    lines: list[str] = []
    for key, value in report.items():
        first, *others = _format_values(value, key)
        lines.append(f"{key.replace('_', ' '):<{width}}  {first}")
        lines += [f"{'':<{width}}  {text}" for text in others]
    return lines


def _format_values(value: Any, key: str) -> list[str]:
    if isinstance(value, list):
        return [_format_value(entry, key) for entry in value] or ["-"]
    if isinstance(value, Mapping):
        lines = [
            f"{name.replace('_', ' ')}: {_format_value(fact, name)}" for name, fact in value.items()
        ]
        return lines or ["-"]
    return [_format_value(value, key)]


def _format_value(value: Any, key: str) -> str:
    if isinstance(value, Mapping):
        facts = {name: fact for name, fact in value.items() if fact is not None}
        return ", ".join(
            f"{name.replace('_', ' ')} {_format_value(fact, name)}" for name, fact in facts.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key.split("_"):
        return size_text(value)
    return "-" if value is None else str(value)
