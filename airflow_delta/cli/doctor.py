"""``airflow-delta doctor URI``: find problems of a table, with remedies. It changes nothing.

Exit status: 0 if no finding is an error, whatever the warnings; 1 if one is, or if the table can't
be checked.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.wording import in_cli_words

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.check.findings import CheckReport

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser("doctor", help="find problems of a table, with remedies")
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    add_allowed_outside(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--quick",
        action="store_const",
        const="quick",
        dest="depth",
        help="check only file names and the newest small parts of the log",
    )
    depth.add_argument(
        "--log",
        action="store_const",
        const="log",
        dest="depth",
        help="read the log, but don't check that its files exist",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, depth="files")


def run(options: argparse.Namespace) -> int:
    """Print the findings of a check.

    Returns:
        The exit status; see the module.

    Raises:
        DeltaError: there is no table, or the store doesn't answer.
    """
    report = open_table(options).check(depth=options.depth)
    if options.json:
        print_json(_in_cli_words(report).to_dict())
    else:
        _print(_in_cli_words(report))
    return 0 if report.ok else 1


def _in_cli_words(report: CheckReport) -> CheckReport:
    """Reword the report for the command line, with subcommands and options."""
    findings = (
        replace(finding, message=in_cli_words(finding.message), remedy=in_cli_words(finding.remedy))
        for finding in report.findings
    )
    return replace(report, findings=tuple(findings))


def _print(report: CheckReport) -> None:
    for finding in report.findings:
        print_line(f"{finding.severity:<7}  {finding.code}: {finding.message}")
        print_line(f"{'':<7}  -> {finding.remedy}")
    counts = ", ".join(
        f"{report.count(severity)} {severity}{'' if report.count(severity) == 1 else 's'}"
        for severity in ("error", "warning")
    )
    print_line(f"version {report.version}: {counts}, {report.count('info')} for information")
