"""What is done to managed tables and may be interrupted, and what a user does next.

`Job.run` is what a task does; a try of it that died is followed by another one, by itself (`again`), or
after other users of the table have done something (`RECOVERIES`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import DeltaWarning, TableAlreadyExistsError
from airflow_delta.engine.transaction.creation import create_table
from tests.faults.commit_jobs import NAME, SCHEMA, append, rewrite_once
from tests.faults.managed_world import OWNED, Client
from tests.owned_tables import OWNER
from tests.races.replayed_log import Commit, Log

__all__ = ["JOBS", "Job", "lenient", "nothing_more", "other_appends", "other_backfills"]

_CONF = f"{OWNED}Conf"


@dataclass(frozen=True)
class Job:
    """Something that is done to a table.

    Attributes:
        before: makes the table as it is before.
        run: does it; tells the version that it makes, if it makes one.
        made: whether a commit is the one that it makes; None where it makes none.
        managed: whether the table has an owner when it is done.
        puts: whether its commit is put into the log, which decides.
    """

    before: Callable[[Client], object]
    run: Callable[[Client], int | None]
    made: Callable[[Commit], bool] | None
    managed: bool = True
    puts: bool = False

    def versions(self, log: Log) -> list[int]:
        """The versions that it has made."""
        made = self.made
        return [] if made is None else [each.version for each in log.commits if made(each)]


def lenient(run: Callable[[Client], int | None], client: Client) -> int | None:
    """What need not be done may fail with a warning, and does here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        return run(client)


# Tables.


def nothing(_: Client) -> None:
    """There is no table."""


def unmanaged(client: Client) -> None:
    """A table of the file system, of three versions, without in-commit timestamps."""
    create_table(client.storage, SCHEMA)
    _fill(client)


def managed(backfill: str, client: Client) -> None:
    """A managed table of three versions."""
    create(backfill, client)
    _fill(client)


def taken_back(client: Client) -> None:
    """A table that had an owner."""
    managed("on-request", client)
    client.delta.convert_to_file_system()


def _fill(client: Client) -> None:
    append(client.delta, path="a", name="a")
    append(client.delta, path="b", name="b")


# What is done to them.


def create(backfill: str, client: Client) -> int:
    """Create a managed table."""
    properties = {OWNED: OWNER, _CONF: json.dumps({"backfill": backfill})}
    owners = CommitOwners({OWNER: client.owner})
    create_table(client.storage, SCHEMA, properties=properties, owners=owners)
    return 0


def create_if_missing(client: Client) -> int:
    """The same, for a table that may be there, by an earlier try."""
    try:
        return create("1", client)
    except TableAlreadyExistsError:
        return 0


def commit(client: Client) -> int:
    """Put one file into the place of another, once."""
    return rewrite_once(client.delta)


def backfill(version: int | None, client: Client) -> None:
    """Backfill up to a version; None for all."""
    client.delta.backfill(version)


def hand_over(policy: str, client: Client) -> int | None:
    """Give a table to an owner."""
    result = client.delta.convert_to_managed(OWNER, {"backfill": policy})
    return result.version if result.converted else None


def take_back(client: Client) -> int | None:
    """Take a table back from its owner."""
    result = client.delta.convert_to_file_system()
    return result.version if result.converted else None


# What others do meanwhile.


def nothing_more(_: Client) -> None:
    """Nobody else uses the table."""


def other_appends(client: Client) -> None:
    """Another writer appends, if there is a table."""
    if client.delta.exists():
        append(client.delta, path="other", name="other")


def other_backfills(client: Client) -> None:
    """Another one backfills, if there is anything to backfill."""
    if client.delta.exists() and client.delta.commit_status().owner is not None:
        client.delta.backfill()


def _by_name(commit: Commit) -> bool:
    return commit.info.get("userMetadata") == NAME


def _gives(commit: Commit) -> bool:
    return commit.version > 0 and any(OWNED in _told(each) for each in commit.of("metaData"))


def _takes(commit: Commit) -> bool:
    return commit.version > 0 and any(OWNED not in _told(each) for each in commit.of("metaData"))


def _gives_again(commit: Commit) -> bool:
    return commit.version > 3 and _gives(commit)


def _told(metadata: dict[str, Any]) -> dict[str, str]:
    configuration: dict[str, str] = metadata["configuration"]
    return configuration


JOBS: dict[str, Job] = {
    "commit, each is backfilled": Job(partial(managed, "1"), commit, _by_name),
    "commit, each third is backfilled": Job(partial(managed, "3"), commit, _by_name),
    "commit, none is backfilled": Job(partial(managed, "on-request"), commit, _by_name),
    "commit, backfilled from the start": Job(
        partial(managed, "direct"), commit, _by_name, puts=True
    ),
    "backfill": Job(partial(managed, "on-request"), partial(backfill, None), None),
    "backfill a part": Job(partial(managed, "on-request"), partial(backfill, 1), None),
    "create": Job(nothing, create_if_missing, lambda commit: commit.version == 0, puts=True),
    "hand over": Job(unmanaged, partial(hand_over, "1"), _gives, puts=True),
    "hand over again": Job(taken_back, partial(hand_over, "on-request"), _gives_again, puts=True),
    "take back": Job(partial(managed, "1"), take_back, _takes, managed=False),
    "take back, with a backlog": Job(
        partial(managed, "on-request"), take_back, _takes, managed=False
    ),
    "take back, direct": Job(
        partial(managed, "direct"), take_back, _takes, managed=False, puts=True
    ),
}
