"""Jobs that compact a table without Spark, or plan to.

Both sides join 1,000 files of 1 MB into files of 128 MB. In `compact` the files are alike, and as
pyarrow writes them with snappy. In `compact-vectors` they have deletion vectors, and lack a column that
was added to the table. The figures are those of the files afterwards: ours copies row groups where it
can, so that they stay in snappy, while `deltalake` encodes all rows anew, with zstd.

The answer is the number of files that were rewritten, and that of rows by the log. It is computed after
time and memory were measured.

Planning has no peer, since `deltalake` has no dry run. The table has a million live files of 10 kB in
365 partitions, and a checkpoint of ours. The clock also runs while the table is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data_tables, tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import ENGINE, Job, Outcome, deltalake, ours
from benchmarks.measure import Stopwatch

__all__ = ["JOBS"]

_FILES = 1_000
_ROWS = 20_000_000
_TARGET = 128 << 20

_LOADS = (*ENGINE, "airflow_delta.engine.maintenance.optimize.execution")


def _our_compact(uri: str) -> Outcome:
    watch = Stopwatch()
    done = our_table(uri).optimize(max_file_size=_TARGET)
    return _outcome(uri, done.num_removed, watch)


def _peer_compact(uri: str) -> Outcome:
    watch = Stopwatch()
    done: dict[str, Any] = peer_table(uri).optimize.compact(target_size=_TARGET)
    return _outcome(uri, done["numFilesRemoved"], watch)


def _outcome(uri: str, rewritten: int, watch: Stopwatch) -> Outcome:
    outcome = watch.stop()
    snapshot = our_table(uri).snapshot()
    figures = {"files": float(snapshot.num_files), "MB": snapshot.size_in_bytes / 1e6}
    return outcome(hash((rewritten, snapshot.num_rows)), figures)


def _our_plan(uri: str) -> Outcome:
    watch = Stopwatch()
    plan = our_table(uri).optimize(dry_run=True).plan
    return watch.stop()(plan.num_files, {"files to rewrite": float(len(plan.files))})


def _live(work: Path, files: int) -> Path:
    """A table with so many live files: a tenth of the adds of a log is removed."""
    return tables.own_checkpoint(work, -(-files * 10 // 9), tables.COMMITS)


def _compaction(name: str, title: str, table: Callable[..., Path]) -> Job:
    return Job(
        name,
        title,
        partial(table, files=_FILES),
        ours(_our_compact, loads=_LOADS),
        deltalake(_peer_compact),
        fresh=True,
        only_by_name=True,
        actions=_ROWS,
    )


JOBS = (
    _compaction(
        "compact", "join 1,000 files of 1 MB into files of 128 MB, files alike", data_tables.large
    ),
    _compaction(
        "compact-vectors",
        "the same, with deletion vectors and an added column",
        data_tables.with_added_column,
    ),
    Job(
        "plan-optimize",
        "open a table, and plan how its files are joined",
        _live,
        ours(_our_plan, loads=_LOADS),
    ),
)
