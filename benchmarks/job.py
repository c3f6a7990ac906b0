"""Jobs: work that our side and its peers do, each in its own process.

The clock runs only for the work. It doesn't run for imports and preparation, such as an open handle, a
Spark session or a predicate. The work returns a number, the answer, which must be the same on all sides, so
that no side wins by doing less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ENGINE", "LIGHT", "Job", "Outcome", "Side", "Work", "deltalake", "ours"]

Make = Callable[[Path, int], Path]
"""Makes a table, from the working folder and the number of actions."""

LIGHT = ("airflow_delta.engine.table",)
"""The modules of the engine for work without Arrow."""

ENGINE = (
    *LIGHT,
    # The modules that the engine loads when it first lists files.
    "airflow_delta.engine.arrow.json.reader",
    "airflow_delta.engine.arrow.parquet.action_file",
    "airflow_delta.engine.replay.reconcile",
    "airflow_delta.engine.replay.repeated_keys",
    "airflow_delta.engine.replay.seen_keys",
    "airflow_delta.engine.checkpoint.distinct_files",
    "airflow_delta.engine.snapshot.live_files",
    "airflow_delta.engine.scan.file_pruner",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of work that measures more than its time and memory.

    Attributes:
        answer: the number that all sides must agree on.
        figures: other measures by name with unit, which the results list after time and memory.
        seconds: the time, if the work measures it itself.
        peak_mb: the peak memory in MB, if the work measures it itself, before it computes the answer.
    """

    answer: int
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    peak_mb: float | None = None


Work = Callable[[Any], int | Outcome]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a job.

    Attributes:
        name: its name in the results.
        work: the work that is measured.
        prepare: makes the argument of the work, before the clock starts; by default the table's location.
        loads: modules that are imported before the clock starts.
        table: makes the table, if this side needs another table than the job's.
    """

    name: str
    work: Work
    prepare: Callable[[str], Any] = str
    loads: tuple[str, ...] = ENGINE
    table: Make | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One line of the results, or one for each peer.

    Attributes:
        name: its name on the command line.
        title: what it does.
        table: makes the table.
        ours: the side of the engine.
        peers: the sides with which it is compared; empty if there is no counterpart.
        fresh: whether each run needs a copy of the table, because it writes. The results then list the
            MB written too.
        whole: whether the clock runs for the whole process, from its start to its end.
        only_by_name: whether it runs only if it is named on the command line, because it takes long
            or needs Delta Spark.
        actions: the number of actions or rows of its table, unless the command line has another.
    """

    name: str
    title: str
    table: Make
    ours: Side
    peers: tuple[Side, ...] = ()
    fresh: bool = False
    whole: bool = False
    only_by_name: bool = False
    actions: int = 1_000_000

    def side(self, name: str) -> Side:
        """The side of a name."""
        return next(side for side in (self.ours, *self.peers) if side.name == name)


def ours(
    work: Work,
    *,
    prepare: Callable[[str], Any] = str,
    loads: tuple[str, ...] = ENGINE,
) -> Side:
    """Our side."""
    return Side("ours", work, prepare, loads)


def deltalake(
    work: Work, *, prepare: Callable[[str], Any] = str, table: Make | None = None
) -> tuple[Side]:
    """`deltalake` as the one peer."""
    return (Side("deltalake", work, prepare, ("deltalake",), table),)
