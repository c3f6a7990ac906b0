"""`Target`: the table of a subcommand, with its storage options from flags, the environment or Airflow.

Without flags the store's own chain of credentials applies (environment, files, role of the machine), and
the environment variable ``AIRFLOW_DELTA_STORAGE_OPTIONS`` may have storage options as a JSON object. With
``--conn-id`` they come from an Airflow connection instead; ``--commit-owner-conn-id`` doesn't change them.
No message quotes the value of an option.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from airflow_delta.cli.options import PairType
from airflow_delta.cli.output import hide, results_apart

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["OPTIONS_VARIABLE", "Access", "Target", "table_options"]

OPTIONS_VARIABLE = "AIRFLOW_DELTA_STORAGE_OPTIONS"
"""The environment variable with storage options."""


_SECRET = re.compile(r"secret|key|token|passw|passphrase|sas|credential|proxy", re.IGNORECASE)
"""Matches the names of options whose values are hidden."""


@dataclass(frozen=True)
class Access:
    """The arguments that open a table; see the arguments of `DeltaTable`."""

    uri: str
    storage_options: Mapping[str, Any] = field(repr=False)
    commit_owners: Mapping[str, CommitOwner] | None
    allowed_outside: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """The table of a subcommand.

    Attributes:
        uri: its location, as it was given.
        storage_options: the storage options of the flags by name.
        connection: the id of an Airflow connection, or None.
        owner_connection: the id of the Airflow connection of the commit owner, or None.
        allowed_outside: locations outside of the table from which it may read files.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    connection: str | None = None
    owner_connection: str | None = None
    allowed_outside: tuple[str, ...] = ()

    def open(self) -> DeltaTable:
        """Create the table object; this makes no request to the store.

        Raises:
            InvalidArgumentError: see `access`; or the location or an option is invalid.
            StorageError: see `access`.
        """
        from airflow_delta.engine import DeltaTable

        access = self.access()
        return DeltaTable(
            access.uri,
            access.storage_options,
            access.commit_owners,
            allowed_outside=access.allowed_outside,
        )

    def access(self) -> Access:
        """Find out how to open the table, and log in if the Airflow connection needs a login.

        Raises:
            InvalidArgumentError: the environment variable with options is malformed; an Airflow connection
                doesn't exist or can't be used; or Airflow isn't installed.
            AccessDeniedError: the cloud refuses the login.
            StorageError: a secrets backend of Airflow fails; or the service for logins doesn't answer.
        """
        if self.connection is not None or self.owner_connection is not None:
            with ExitStack() as stack:
                # Airflow logs to standard output, which is for results. A long command logs in again, so
                # what is printed is kept apart until its end.
                context = click.get_current_context(silent=True)
                enter = stack.enter_context if context is None else context.with_resource
                enter(results_apart())
                return self._access_by_airflow()
        return self._access_by_options(None)

    def _access_by_options(self, owners: Mapping[str, CommitOwner] | None) -> Access:
        options = {**_environment_options(), **self.storage_options}
        _hide_secrets(options)
        return Access(self.uri, options, owners, self.allowed_outside)

    def _access_by_airflow(self) -> Access:
        from airflow_delta.engine.errors import InvalidArgumentError

        # As `airflow connections` does, so that the connections in the metadata database are found.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        try:
            from airflow_delta.hooks.commit_owner import commit_owners
            from airflow_delta.hooks.delta import DeltaHook
            from airflow_delta.hooks.table_locations import split_connection
            from airflow_delta.version_compat import AirflowException
        except ImportError as error:
            raise InvalidArgumentError(
                "--conn-id and --commit-owner-conn-id need Airflow, which can't be imported here; use "
                f"--storage-option or the environment instead: {error}"
            ) from error
        hook = DeltaHook(self.connection, self.owner_connection, self.allowed_outside)
        try:
            owners = commit_owners(hook.commit_owner.url())
            if self.connection is None and split_connection(self.uri)[0] is None:
                # Only the commit owner is in Airflow.
                return self._access_by_options(owners)
            table = hook.table(self.uri)
        except AirflowException as error:
            raise InvalidArgumentError(str(error), table=self.uri) from error
        options = {**table.storage_options, **self.storage_options}
        _hide_secrets(options)
        _log_in(options)
        return Access(table.uri, options, owners, table.allowed_outside)


def table_options(*, outside: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the argument ``URI`` and the options that open a table; the function gets a `Target`.

    Args:
        outside: whether to add ``--allowed-outside``, for what opens the files of the table.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        """Add the argument and the options to a function."""

        @functools.wraps(function)
        def run(
            uri: str,
            storage_option: tuple[tuple[str, str], ...],
            conn_id: str | None,
            commit_owner_conn_id: str | None,
            allowed_outside: tuple[str, ...] = (),
            **others: Any,
        ) -> Any:
            """Call the function with a `Target` instead of the argument and the options."""
            target = Target(
                uri, dict(storage_option), conn_id, commit_owner_conn_id, allowed_outside
            )
            return function(target, **others)

        parameters = [*_PARAMETERS, *([_ALLOWED_OUTSIDE] if outside else [])]
        return functools.reduce(lambda decorated, add: add(decorated), parameters, run)

    return decorate


def _complete_directory(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="dir")]


_ALLOWED_OUTSIDE = click.option(
    "--allowed-outside",
    multiple=True,
    metavar="LOCATION",
    help="A location outside of the table below which it may read files that its log names, such as files "
    "of a shallow clone; may be given more than once.",
)
_PARAMETERS = (
    click.option(
        "--commit-owner-conn-id",
        metavar="ID",
        help="The Airflow connection with the database of the commit owner of managed tables.",
    ),
    click.option(
        "--conn-id", metavar="ID", help="The Airflow connection with the credentials of the store."
    ),
    click.option(
        "--storage-option",
        multiple=True,
        type=PairType("=", is_secret=True),
        metavar="NAME=VALUE",
        help="An option of the store, such as aws_region=eu-west-1; may be given more than once. Put "
        f"secrets into the environment variable {OPTIONS_VARIABLE} instead, a JSON object: other users of "
        "the machine can see command lines.",
    ),
    # A shell completes the names of directories; there is nothing to complete in a URI.
    click.argument("uri", metavar="URI", shell_complete=_complete_directory),
)


def _log_in(options: Mapping[str, Any]) -> None:
    """Call the function that provides the credentials, if there is one, and hide their secrets.

    Otherwise the client of the store would be the first to call it. What the hooks of Airflow's providers
    print and log, also when they are imported, would be among the results.
    """
    from airflow_delta.engine.storage.store_arguments import CREDENTIAL_PROVIDER

    provider = options.get(CREDENTIAL_PROVIDER)
    if provider is not None:
        _hide_secrets(provider())


def _hide_secrets(options: Mapping[str, Any]) -> None:
    hide(
        value for name, value in options.items() if isinstance(value, str) and _SECRET.search(name)
    )


def _environment_options() -> dict[str, str]:
    from airflow_delta.engine.errors import InvalidArgumentError

    text = os.environ.get(OPTIONS_VARIABLE)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if isinstance(options, dict) and all(isinstance(value, str) for value in options.values()):
        return options
    # Without the cause, whose traceback would quote the text.
    raise InvalidArgumentError(
        f"the environment variable {OPTIONS_VARIABLE} isn't a JSON object whose values are texts, such as "
        '{"aws_region": "eu-west-1"}'
    )
