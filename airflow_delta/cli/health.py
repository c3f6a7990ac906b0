"""``airflow-delta health URI``: report the state of a table in numbers, from the log alone."""

from __future__ import annotations

from airflow_delta.cli.options import json_option, subcommand
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.target import Target, table_options
from airflow_delta.cli.wording import in_cli_words

__all__ = ["health"]


@subcommand(
    "health",
    help="Report small files, deleted rows and the log in numbers, and possible gains.",
    is_long=True,
)
@table_options()
@json_option
def health(target: Target, *, as_json: bool) -> None:
    """Print the numbers.

    Raises:
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine.maintenance.reports import format_report

    facts = target.open().health().to_dict()
    gains = facts.pop("gains")
    for gain in gains.values():
        if gain["reason"] is not None:
            gain["reason"] = in_cli_words(gain["reason"])
    if as_json:
        print_json({"table_uri": target.uri, **facts, "gains": gains})
        return
    for line in format_report(
        {**facts, **{f"gain_of_{name}": [gain] for name, gain in gains.items()}}
    ):
        print_line(line)
