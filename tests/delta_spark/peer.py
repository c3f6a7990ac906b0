"""The test's end of `worker`: run statements with Delta Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["DeltaSpark", "DeltaSparkError", "delta_spark_jars"]

_ROOT = Path(__file__).resolve().parents[2]
_GROUPS = ("delta-", "unitycatalog-")
"""Of what the peer names as its dependencies, Spark brings the rest."""


def delta_spark_jars() -> list[Path]:
    """The jars that ``make delta-spark`` has fetched; empty where it hasn't."""
    folder = Path(sysconfig.get_path("data")) / "delta-spark"
    return sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(_GROUPS))


class DeltaSparkError(Exception):
    """What Delta Spark raised."""


class DeltaSpark:
    """A running worker.

    Args:
        jars: those of Delta Spark.
    """

    def __init__(self, jars: list[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.delta_spark.worker", *map(str, jars)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            text=True,
        )

    def sql(
        self, statement: str, *, settings: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The rows that a statement gives; values that JSON doesn't have come as texts.

        Args:
            statement: in Spark SQL. A table at a path is ``delta.`/path```.
            settings: of the session, from now on.

        Raises:
            DeltaSparkError: the statement failed.
        """
        assert self._process.stdin
        assert self._process.stdout
        request = {"sql": statement, "settings": dict(settings or {})}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise DeltaSparkError(f"the worker has gone, over: {statement}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DeltaSparkError(answer["error"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def sql_of_each(self, queries: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The rows of each query; they are one statement, because each takes a time to plan and start.

        Args:
            queries: their columns have the same names and types.

        Raises:
            DeltaSparkError: one of them failed.
        """
        marked = [f"SELECT {n} AS query_, * FROM ({query})" for n, query in enumerate(queries)]
        found: list[list[dict[str, Any]]] = [[] for _ in queries]
        for row in self.sql(" UNION ALL ".join(marked)):
            found[row.pop("query_")].append(row)
        return found

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)
