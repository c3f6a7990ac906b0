"""``airflow-delta doctor URI``: what is wrong with a table, and what mends it. Nothing is changed.

Exit status: 0 where there is no error among the findings, whatever the warnings; 1 where there is one,
and where the table can't be looked at.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.check.findings import CheckReport

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser("doctor", help="what is wrong with a table, and what mends it")
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--quick",
        action="store_const",
        const="quick",
        dest="depth",
        help="look at names and the newest small parts of the log alone",
    )
    depth.add_argument(
        "--log",
        action="store_const",
        const="log",
        dest="depth",
        help="read the log, and don't look whether the files are there that it names",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, depth="files")


def run(options: argparse.Namespace) -> int:
    """Print what a check finds.

    Returns:
        The exit status; see the module.

    Raises:
        DeltaError: there is no table, or the store doesn't answer.
    """
    from airflow_delta.engine import DeltaTable

    report = DeltaTable(options.uri).check(depth=options.depth)
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: CheckReport) -> None:
    for finding in report.findings:
        print(f"{finding.severity:<7}  {finding.code}: {finding.message}")
        print(f"{'':<7}  -> {finding.mend}")
    counts = ", ".join(
        f"{report.count(severity)} {severity}{'' if report.count(severity) == 1 else 's'}"
        for severity in ("error", "warning")
    )
    print(f"version {report.version}: {counts}, {report.count('info')} for information")
