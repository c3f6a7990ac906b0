"""PostgreSQL for the tests: a throw-away cluster on a loopback port, and fresh databases in it.

    url = new_database()             # skips the test where PostgreSQL isn't installed (``make postgres``)

    with postgres_cluster() as cluster:   # one of the test's own, which it may stop
        url = cluster.new_database()
        cluster.stop()

A cluster is a shell that starts a server and stops it when its input ends, so that it dies with the
tests however they die. PostgreSQL refuses to run as root; then the shell runs as ``postgres``, the user
that the package makes.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["PASSWORD", "PostgresCluster", "new_database", "postgres_cluster"]

PASSWORD = "p@ss/word:%41"
"""Of every character that a URL has to encode one."""

_ENCODED_PASSWORD = "p%40ss%2Fword%3A%2541"
_PROGRAMS = Path("/usr/lib/postgresql")

# $1: the folder of the programs, or nothing; $2: a folder of our own; $3: the port.
_SCRIPT = """
set -e
PATH="$1:$PATH"
cd "$2"
access="--username=tests --pwfile=password --auth=scram-sha-256"
initdb --pgdata=data $access --no-locale --encoding=UTF8 --no-sync >initdb.log 2>&1
options="-p $3 -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200"
pg_ctl start --wait --pgdata=data --log=server.log --options="$options" >pg_ctl.log 2>&1 </dev/null
echo started
cat >/dev/null
pg_ctl stop --mode=immediate --pgdata=data >stop.log 2>&1
"""


class PostgresCluster:
    """A server of its own with an empty cluster.

    Raises:
        RuntimeError: it doesn't start.
    """

    def __init__(self, programs: str) -> None:
        self._names = (f"database_{number}" for number in itertools.count())
        self._folder = tempfile.mkdtemp(prefix="airflow-delta-postgres-")
        (Path(self._folder) / "password").write_text(PASSWORD)
        self._port = _free_port()
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if user:
            for path in (Path(self._folder), *Path(self._folder).iterdir()):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._shell = subprocess.Popen(
            ["sh", "-c", _SCRIPT, "sh", programs, self._folder, str(self._port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=[] if user else None,
        )
        assert self._shell.stdout
        if self._shell.stdout.readline() != b"started\n":
            logs = [path.read_text() for path in sorted(Path(self._folder).glob("*.log"))]
            self.stop()
            raise RuntimeError("PostgreSQL didn't start: " + "\n".join(logs))

    def new_database(self) -> str:
        """Make an empty database, and give its URL."""
        import psycopg

        name = next(self._names)
        with psycopg.connect(
            host="127.0.0.1",
            port=self._port,
            user="tests",
            password=PASSWORD,
            dbname="postgres",
            autocommit=True,
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://tests:{_ENCODED_PASSWORD}@127.0.0.1:{self._port}/{name}"

    def stop(self) -> None:
        """Stop the server as a crash does: without a word to its clients. It may be repeated."""
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.close()
        self._shell.wait(timeout=60)
        self._shell.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def postgres_cluster() -> Iterator[PostgresCluster]:
    """A cluster of one's own. Skips the test where PostgreSQL isn't installed."""
    cluster = PostgresCluster(_programs())
    try:
        yield cluster
    finally:
        cluster.stop()


def new_database() -> str:
    """The URL of an empty database in the cluster that all tests share.

    Skips the test where PostgreSQL isn't installed.
    """
    return _shared_cluster(_programs()).new_database()


@functools.cache
def _shared_cluster(programs: str) -> PostgresCluster:
    cluster = PostgresCluster(programs)
    atexit.register(cluster.stop)
    return cluster


def _programs() -> str:
    """The folder of PostgreSQL's programs."""
    # Debian doesn't put them into the PATH, because there may be several versions.
    versions = sorted(_PROGRAMS.glob("*/bin"), key=lambda path: float(path.parent.name))
    found = shutil.which("initdb", path=os.pathsep.join([os.environ["PATH"], *map(str, versions)]))
    if found is None:
        remedy = "PostgreSQL isn't installed: make postgres"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return str(Path(found).parent)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
