"""The reports of operations on a table: for XCom, and for the log of the task."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["log_report", "timed_report"]


def timed_report(
    table_uri: str, report: Mapping[str, Any], *, began: float, **arguments: Any
) -> dict[str, Any]:
    """Complete the report of an operation with its table, its arguments and its duration.

    :param table_uri: the table.
    :param report: the result of the operation, as JSON values.
    :param began: when it began, by `time.monotonic`.
    :param arguments: arguments that the report shall contain, such as ``dry_run``.
    """
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **report, **arguments, "duration_ms": duration}


def log_report(logger: Any, what: str, report: Mapping[str, Any]) -> None:
    """Write a report to the log of a task, with a line per fact.

    :param logger: the task's logger.
    :param what: the title of the report.
    :param report: the result of a method of `DeltaHook`.
    """
    from airflow_delta.engine.maintenance.reports import format_report
    from airflow_delta.engine.public_text import printable

    facts = {name: value for name, value in report.items() if name != "table_uri"}
    # Escapes line breaks within facts.
    lines = "\n".join(map(printable, format_report(facts)))
    logger.info("%s of %s\n%s", what, report["table_uri"], lines)
