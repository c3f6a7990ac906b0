"""``airflow-delta doctor URI``: find problems of a table, with remedies. It changes nothing.

Exit status: 0 if no finding is an error, whatever the warnings; 1 if one is, or if the table can't
be checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from airflow_delta.cli.options import at_most_one, json_option, subcommand
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.target import Target, table_options
from airflow_delta.cli.wording import in_cli_words

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.check.findings import CheckReport

__all__ = ["doctor"]


@subcommand(
    "doctor", help="Find problems of a table, with remedies. It changes nothing.", is_long=True
)
@table_options(outside=True)
@click.option(
    "--quick", is_flag=True, help="Check only file names and the newest small parts of the log."
)
@click.option("--log", is_flag=True, help="Read the log, but don't check that its files exist.")
@json_option
def doctor(target: Target, *, quick: bool, log: bool, as_json: bool) -> int:
    """Print the findings of a check.

    Returns:
        The exit status; see the module.

    Raises:
        DeltaError: there is no table, or the store doesn't answer.
    """
    at_most_one(quick=quick, log=log)
    report = target.open().check(depth="quick" if quick else "log" if log else "files")
    if as_json:
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
