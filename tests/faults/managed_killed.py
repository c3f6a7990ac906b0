"""Jobs on managed tables that are killed for real: in a process each, by SIGKILL, before their n-th step.

A step is whatever changes the table's directory (`killed`), and each statement that the owner's database is
sent, those that begin and end a transaction among them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, event

from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.commit.sql.schema import TABLES
from airflow_delta.engine.commit.sql.store import SqlCommitStore
from airflow_delta.engine.storage.local import LocalStorage
from tests.faults.killed import count_steps
from tests.faults.managed_jobs import JOBS, lenient
from tests.faults.managed_world import Client, World
from tests.table_builder import Files

__all__ = ["Place", "kills"]

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


class Place:
    """A table in a directory, and beside it the database of its owner.

    Args:
        root: the folder of both, which is there.
    """

    def __init__(self, root: Path) -> None:
        self.table = root / "table"
        self._database = root / "commits.db"

    @property
    def client(self) -> Client:
        """A client as users have it."""
        return Client(LocalStorage(str(self.table)), SqlCommitOwner(self._url))

    @property
    def world(self) -> World:
        """The place, to be examined."""
        return World(LocalStorage(str(self.table)), SqlCommitStore(self._url))

    def fill(self, other: Place, files: Files) -> None:
        """Have what another place has.

        Args:
            other: the other one.
            files: its table.
        """
        for path, content in files.items():
            (self.table / path).parent.mkdir(parents=True, exist_ok=True)
            (self.table / path).write_bytes(content)
        if not other._database.exists():
            return
        with closing(sqlite3.connect(other._database)) as connection:
            connection.execute("VACUUM INTO ?", [str(self._database)])
        with closing(sqlite3.connect(self._database, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"UPDATE {TABLES.name} SET location = ?", [str(self.table)])

    @property
    def _url(self) -> str:
        return f"sqlite:///{self._database}"


def kills(place: Place, job: str, nth: int) -> bool:
    """Run a job in a process; whether it was killed, that is, whether it has so many steps."""
    process = _PROCESSES.Process(target=_run, args=(str(place.table.parent), job, nth))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _run(root: str, job: str, nth: int) -> None:
    left = nth
    place = Place(Path(root))

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", step)
    count_steps(str(place.table), step)
    lenient(JOBS[job].run, place.client)
