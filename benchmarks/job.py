"""What a job is: work that is done by our side and by peers, each in a process of its own.

The clock runs for the work only, not for the imports, nor for what is prepared: a handle that is open
already, a Spark session, or the predicate of a question. The work returns a number that all sides must
agree on, so that no side wins by doing less.
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
    # What the engine loads when it is first asked for files.
    "airflow_delta.engine.arrow.json.reader",
    "airflow_delta.engine.arrow.parquet.action_file",
    "airflow_delta.engine.replay.reconcile",
    "airflow_delta.engine.scan.file_pruner",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What work gives that has more to tell than its answer.

    Attributes:
        answer: the number that all sides must agree on.
        figures: other measures by name, with their unit, to be told beside time and memory.
        seconds: the time that counts, where the work takes it itself.
    """

    answer: int
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


Work = Callable[[Any], int | Outcome]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a job.

    Attributes:
        name: what the results call it.
        work: what is timed.
        prepare: makes, outside the clock, what the work is given; by default the table's location.
        loads: modules that are imported outside the clock.
        table: makes the table, where this side has one of its own making.
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
        name: what it is called on the command line.
        title: what it does.
        table: makes the table.
        ours: the side of the engine.
        peers: the sides that it is measured beside; none where there is no counterpart.
        fresh: whether each run needs a copy of the table, because it writes. What it has written is
            told beside time and memory then.
        whole: whether the clock runs for the whole process, from its start to its end.
        asked: whether it runs only where it is named on the command line, since it takes long or
            needs Delta Spark.
    """

    name: str
    title: str
    table: Make
    ours: Side
    peers: tuple[Side, ...] = ()
    fresh: bool = False
    whole: bool = False
    asked: bool = False

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
