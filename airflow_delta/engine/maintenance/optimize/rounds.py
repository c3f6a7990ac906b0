"""Write the new files of a round, several at once.

Bins that are only rewritten go to several threads. So do small bins whose rows are sorted. Large ones are
sorted one after the other, each with all threads: several at once would need the memory of each.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.maintenance.optimize.bin_writer import BinWriter
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles, Rewritten
from airflow_delta.engine.maintenance.optimize.sorted_writer import SortedWriter
from airflow_delta.engine.maintenance.optimize.sorting.order import SortOrder
from airflow_delta.engine.maintenance.optimize.source_files import live_bytes
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.progress import Reporter
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["LocalRounds", "Round", "RoundWriter"]

_MOST_THREADS = 4
_ALONE_BYTES = 32 << 20
"""Bins with more bytes are sorted one after the other, each with all threads."""


@dataclass(frozen=True, slots=True)
class Round:
    """Bins that are committed together: the files of each, with all columns of ``add``.

    Attributes:
        to_sort: those whose rows are sorted.
        others: the others.
    """

    to_sort: list[pa.Table]
    others: list[pa.Table]


class RoundWriter(Protocol):
    """Writes the new files of rounds."""

    def write(self, bins: Round, reporter: Reporter) -> list[Rewritten]:
        """Write the new files of a round.

        Args:
            bins: the round.
            reporter: counts the bytes of the files that are rewritten.

        Raises:
            DeltaError: a file can't be read, or the store failed.
        """


@dataclass(frozen=True, slots=True)
class LocalRounds:
    """Writes the new files of rounds in threads of this process.

    Attributes:
        access: opens the files of the table.
        target: what new files look like.
        new_files: creates files.
        order: by which columns rows are sorted; None if there are no bins to sort.
    """

    access: FileAccess
    target: FileTarget
    new_files: NewFiles
    order: SortOrder | None

    def write(self, bins: Round, reporter: Reporter) -> list[Rewritten]:
        """Write the new files of a round; see `RoundWriter.write`.

        Raises:
            DeltaError: a file can't be read, or the store failed; see `BinWriter` and `SortedWriter`.
        """
        return self._sorted(bins.to_sort, reporter) + _in_threads(
            bins.others,
            reporter,
            lambda threads: (
                BinWriter(
                    self.access,
                    self.target,
                    self.new_files,
                    # Not more files at once than there are threads.
                    threads=1 if threads > 1 else 2,
                ).write
            ),
        )

    def _sorted(self, bins: Sequence[pa.Table], reporter: Reporter) -> list[Rewritten]:
        if self.order is None:
            return []
        large = [each for each in bins if live_bytes(each) > _ALONE_BYTES]
        small = [each for each in bins if live_bytes(each) <= _ALONE_BYTES]
        one_thread = SortedWriter(self.access, self.target, self.new_files, self.order)
        alone = replace(one_thread, threads=_available_threads(), reporter=reporter)
        return [*alone.write(large), *_in_threads(small, reporter, lambda _: one_thread.write)]


def _in_threads(
    bins: Sequence[pa.Table],
    reporter: Reporter,
    make_write: Callable[[int], Callable[[Iterable[pa.Table]], Iterator[Rewritten]]],
) -> list[Rewritten]:
    """Write the new files of bins in threads.

    Args:
        bins: the bins.
        reporter: counts their bytes, in the calling thread.
        make_write: makes the function with which a thread writes its bins, by the number of threads.
    """
    if not bins:
        return []
    threads = min(_available_threads(), len(bins))
    stopped = Event()
    # The sizes of the bins that are written; None from a thread that ends.
    written: SimpleQueue[int | None] = SimpleQueue()

    def _write(part: Sequence[pa.Table]) -> list[Rewritten]:
        found: list[Rewritten] = []
        try:
            for rewritten in make_write(threads)(_until(stopped, part)):
                found.append(rewritten)
                written.put(rewritten.source_bytes)
        except BaseException:
            stopped.set()
            raise
        finally:
            written.put(None)
        return found

    if threads == 1:
        return _write_here(make_write(1)(bins), reporter)
    parts = _split(bins, threads)
    with ThreadPoolExecutor(threads, thread_name_prefix="delta-optimize") as pool:
        try:
            found: list[Future[list[Rewritten]]] = [pool.submit(_write, part) for part in parts]
            for _ in parts:
                for size in iter(written.get, None):
                    reporter.advance(size)
        except BaseException:  # an interrupt
            stopped.set()
            raise
        return [rewritten for part in found for rewritten in part.result()]


def _write_here(written: Iterable[Rewritten], reporter: Reporter) -> list[Rewritten]:
    found: list[Rewritten] = []
    for rewritten in written:
        found.append(rewritten)
        reporter.advance(rewritten.source_bytes)
    return found


def _available_threads() -> int:
    """How many threads a run may have."""
    return min(max(os.cpu_count() or 1, 2), _MOST_THREADS)


def _split(bins: Sequence[pa.Table], parts: int) -> list[Sequence[pa.Table]]:
    """Split bins into parts of about the same size, in order: those of a partition stay together."""
    sizes = np.cumsum([pc.sum(each["size"]).as_py() for each in bins])
    ends = np.searchsorted(sizes, sizes[-1] * np.arange(1, parts) / parts, side="left") + 1
    bounds = [0, *np.minimum(ends, len(bins)).tolist(), len(bins)]
    found = [bins[start:end] for start, end in itertools.pairwise(bounds)]
    return [part for part in found if part]


def _until(stopped: Event, bins: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The bins, until another thread has failed. What is missing then isn't committed."""
    for each in bins:
        if stopped.is_set():
            return
        yield each
