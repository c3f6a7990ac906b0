"""The arguments and options that subcommands share, and the classes of the command.

A message about a wrong command line never quotes the value of a storage option or a superfluous argument,
because it may be a secret. Unknown options and wrong values of other options are quoted, by click.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click

from airflow_delta.cli.progress import show_progress

__all__ = [
    "HOURS",
    "POSITIVE",
    "VERSION_NUMBER",
    "CommandGroup",
    "PairType",
    "Subcommand",
    "at_most_one",
    "dry_run_option",
    "exactly_one",
    "json_option",
    "only_with",
    "subcommand",
    "version_options",
    "yes_option",
]

P = ParamSpec("P")
R = TypeVar("R")

_MOST_HOURS = 1e9


class CommandGroup(click.Group):
    """A group of commands. An unknown command is an error that doesn't quote a misplaced option."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names.

        Raises:
            click.UsageError: there is none.
        """
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0] not in known and not args[0].startswith("-"):
            is_word = args[0].replace("-", "").isalnum()
            found = repr(args[0]) if is_word else "something else"
            ctx.fail(f"expected one of {', '.join(known)}, found {found}")
        return super().resolve_command(ctx, args)


class Subcommand(click.Command):
    """A subcommand. A superfluous argument is an error that doesn't quote it.

    Args:
        arguments: those of `click.Command`.
        is_long: whether the work may take long, so that its progress is shown.
        named: see ``arguments``.
    """

    def __init__(self, *arguments: Any, is_long: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._is_long = is_long

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand, and show its progress, unless the output is for a program."""
        is_shown = self._is_long and not ctx.params.get("as_json")
        with show_progress(self.name or "", is_shown=is_shown):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after the name of the subcommand.

        Raises:
            click.UsageError: they are wrong.
        """
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            arguments = "1 argument" if len(rest) == 1 else f"{len(rest)} arguments"
            ctx.fail(f"{arguments} too many; put texts with spaces into quotes")
        return rest


def subcommand(
    name: str,
    *,
    help: str,  # noqa: A002
    is_long: bool = False,
) -> Callable[[Callable[..., Any]], Subcommand]:
    """Make a function a subcommand.

    Args:
        name: its name.
        help: what it does, for ``--help``.
        is_long: see `Subcommand`.
    """
    return click.command(
        name,
        cls=Subcommand,
        is_long=is_long,
        help=help,
        short_help=help.partition(". ")[0].removesuffix("."),
        context_settings={"help_option_names": ["-h", "--help"]},
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only report what would be done.")


def yes_option(help: str) -> Callable[[Callable[P, R]], Callable[P, R]]:  # noqa: A002
    """The options ``--yes`` and ``--dry-run`` of what deletes files.

    Args:
        help: what isn't done without ``--yes``.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        """Add both options to a function."""
        dry_run = click.option(
            "--dry-run", is_flag=True, help="Only report what would be done: the default."
        )
        return dry_run(click.option("--yes", "-y", is_flag=True, help=help)(function))

    return decorate


# `ParamType` isn't generic in earlier versions of click.
class _VersionNumber(click.ParamType):  # type: ignore[type-arg]
    name = "version"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Convert the text to a version.

        Raises:
            click.BadParameter: it isn't a number of 0 or more.
        """
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdecimal()):
            self.fail(f"expected a version, at least 0, found {value!r}", param, ctx)
        return int(value)


class _Hours(click.ParamType):  # type: ignore[type-arg]
    name = "hours"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Convert the text to a number of hours.

        Raises:
            click.BadParameter: it isn't a number, or is negative or too large.
        """
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= _MOST_HOURS:
            self.fail(f"expected a number of hours, at least 0, found {value!r}", param, ctx)
        return number


class PairType(click.ParamType):  # type: ignore[type-arg]
    """A name and a value in one text.

    Args:
        separator: what separates them.
        is_last: whether the last separator does, and not the first.
        is_secret: whether a message must not quote the text.
    """

    name = "pair"

    def __init__(self, separator: str, *, is_last: bool = False, is_secret: bool = False) -> None:
        self._separator, self._is_last, self._is_secret = separator, is_last, is_secret

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        """Split the text.

        Raises:
            click.BadParameter: the name or the value is missing.
        """
        if isinstance(value, tuple):
            return value
        split = value.rpartition if self._is_last else value.partition
        name, _, content = split(self._separator)
        if not (name and content):
            found = "" if self._is_secret else f", found {value!r}"
            self.fail(f"expected a name, {self._separator!r} and a value{found}", param, ctx)
        return name, content


VERSION_NUMBER = _VersionNumber()
"""A version: a number of 0 or more."""
HOURS = _Hours()
"""A number of hours."""
POSITIVE = click.IntRange(min=1)
"""A number of 1 or more."""


def version_options(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The options ``--version`` and ``--timestamp``; use `at_most_one` or `exactly_one` with them.

    Args:
        what: the verb for the help, such as ``"Describe"``.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        """Add both options to a function."""
        version = click.option(
            "--version", type=VERSION_NUMBER, metavar="VERSION", help=f"{what} this version."
        )
        timestamp = click.option(
            "--timestamp",
            metavar="TIME",
            help=f"{what} the newest version at this time, as ISO-8601 with offset.",
        )
        return version(timestamp(function))

    return decorate


def at_most_one(**options: Any) -> None:
    """Refuse a command line with more than one of some options.

    Args:
        options: their values by parameter; those that are None or false aren't given.

    Raises:
        click.UsageError: there are more.
    """
    given = [_flag(name) for name, value in options.items() if _is_given(value)]
    if len(given) > 1:
        raise click.UsageError(f"{given[1]}: not allowed with {given[0]}", _context())


def only_with(name: str, value: Any, **options: Any) -> None:
    """Refuse a command line with options that mean nothing without another one.

    Args:
        name: the parameter of the other one.
        value: its value.
        options: see `at_most_one`.

    Raises:
        click.UsageError: one of them is given, and the other one isn't.
    """
    given = [_flag(other) for other, option in options.items() if _is_given(option)]
    if given and not _is_given(value):
        raise click.UsageError(f"{given[0]}: only allowed with {_flag(name)}", _context())


def exactly_one(**options: Any) -> None:
    """Refuse a command line without exactly one of some options; see `at_most_one`.

    Raises:
        click.UsageError: there is none, or there are more.
    """
    at_most_one(**options)
    if not any(map(_is_given, options.values())):
        flags = " ".join(map(_flag, options))
        raise click.UsageError(f"one of the options {flags} is required", _context())


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


def _flag(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def _context() -> click.Context | None:
    return click.get_current_context(silent=True)
