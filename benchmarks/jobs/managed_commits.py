"""Jobs that commit to managed tables, and the same commits to a table that the file system manages.

Both tables have in-commit timestamps. By the default policy, the writer of the managed table backfills each
commit. So it writes a commit twice, and makes three steps in the owner's database.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.handles import our_table
from benchmarks.job import ENGINE, Job, Side, Work
from benchmarks.jobs.commits import (
    COMMITS,
    WRITERS,
    empty,
    many_writers,
    one_writer,
    prepared,
    started,
)

__all__ = ["JOBS"]

_URL = "AIRFLOW_DELTA_COMMIT_OWNER_URL"
_LOADS = (*ENGINE, "airflow_delta.engine.commit.sql.owner")


def _sqlite(uri: str) -> str:
    # Beside the table, on the same disk.
    return f"sqlite:///{Path(uri).resolve().parent / 'owner.db'}"


def _postgres(_: str) -> str:
    # The tests have a server that lives as long as the process.
    from tests.postgres_server import new_database

    return new_database()


def _managed(
    database: Callable[[str], str], prepare: Callable[[str], object]
) -> Callable[[str], Any]:
    def make(uri: str) -> object:
        os.environ[_URL] = database(uri)
        our_table(uri).convert_to_managed("sql")
        return prepare(uri)

    return make


def _unmanaged(prepare: Callable[[str], object]) -> Callable[[str], Any]:
    def make(uri: str) -> object:
        our_table(uri).alter.set_properties({"delta.enableInCommitTimestamps": "true"})
        return prepare(uri)

    return make


def _job(
    name: str,
    title: str,
    work: Work,
    database: Callable[[str], str],
    prepare: Callable[[str], object],
) -> Job:
    return Job(
        name,
        title,
        empty,
        Side("ours", work, _managed(database, prepare), _LOADS),
        (Side("file system", work, _unmanaged(prepare), _LOADS),),
        fresh=True,
        only_by_name=True,
    )


_ONE = f"{COMMITS:,} commits of one add, one writer"
_MANY = f"{COMMITS:,} commits of one add, {WRITERS} writers on one table"

JOBS = tuple(
    job
    for owner, database in (("sqlite", _sqlite), ("postgres", _postgres))
    for job in (
        _job(
            f"managed-{owner}-1",
            f"{_ONE}; managed ({owner})",
            one_writer,
            database,
            prepared("ours"),
        ),
        _job(
            f"managed-{owner}-{WRITERS}",
            f"{_MANY}; managed ({owner})",
            many_writers,
            database,
            started("ours"),
        ),
    )
)
