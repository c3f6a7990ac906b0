"""``airflow-delta completion SHELL``: the script by which a shell completes the command line."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from airflow_delta.cli.options import subcommand
from airflow_delta.cli.output import print_script

__all__ = ["COMPLETE_VARIABLE", "completion"]

COMPLETE_VARIABLE = "_AIRFLOW_DELTA_COMPLETE"
"""The environment variable that the script sets when it calls the program for completions."""

_PROGRAM = "airflow-delta"


@subcommand(
    "completion",
    help="Print the script for shell completion. For bash, put this into ~/.bashrc: "
    'eval "$(airflow-delta completion bash)"',
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script."""
    found = get_completion_class(shell)
    assert found is not None
    command = click.get_current_context().find_root().command
    print_script(found(command, {}, _PROGRAM, COMPLETE_VARIABLE).source())
