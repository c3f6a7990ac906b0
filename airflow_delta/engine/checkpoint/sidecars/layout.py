"""The layout of file actions in sidecars: a change to the table should affect few sidecars.

An incremental checkpoint rewrites only the sidecars that a change affects (`incremental_v2`). So rows that
tend to change together are stored together (`clustered`):

* adds and removes never share a sidecar;
* adds are sorted by partition values, then by path, and a sidecar ends at the end of a partition if one is
  near;
* removes are sorted by ``deletionTimestamp``: they expire in that order, sidecar by sidecar.

The columns are those of a classic checkpoint (`layout`), adds and removes alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.typed_columns import TypedColumns, typed_columns
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.replay.tombstones import deletion_times

__all__ = [
    "SIDECAR_ROWS",
    "SidecarLayout",
    "SidecarRows",
    "clustered",
    "sidecar_layout",
    "stats_form",
]

SIDECAR_ROWS = 50_000
"""The most rows of a sidecar, and so the most that changing one row costs: about a megabyte."""

_RUN_BYTES = 128 << 20
"""The bytes of a run: rows in memory, before encoding, that are sorted together. While one run is written
the next one is gathered, so memory holds two runs and a few sidecars. A table of about a million files is
one or a few runs. In a table of ``n`` runs a partition is in at most ``n`` times as many sidecars, mostly
in fewer, because runs follow the log, and commits mostly add to few partitions at a time."""


@dataclass(frozen=True, slots=True)
class SidecarLayout:
    """The layout of a table's sidecars, by its protocol and metadata.

    Attributes:
        schema: the columns ``add`` and ``remove``.
        typed: makes the typed columns of adds; None for none.
        stats_form: the form in which statistics are stored; adds of another form can't be kept.
    """

    schema: pa.Schema
    typed: TypedColumns | None
    stats_form: str


@dataclass(frozen=True, slots=True)
class SidecarRows:
    """The rows of a sidecar that is to be written.

    Attributes:
        kind: ``"add"`` or ``"remove"``.
        load: gives the rows. Call it on a thread, because it takes most of the time.
    """

    kind: str
    load: Callable[[], pa.Table]


def sidecar_layout(protocol: Protocol, metadata: Metadata, *, table: str) -> SidecarLayout:
    """The layout by the table's properties.

    Raises:
        InvalidTableError: see `typed_columns`.
    """
    typed = typed_columns(protocol, metadata, table=table)
    texts = TableProperties(metadata.configuration, table).write_stats_as_json
    parsed = typed.fields if typed else []
    schema = checkpoint_schema(stats=texts, parsed=parsed)
    return SidecarLayout(
        schema=pa.schema([schema.field("add"), schema.field("remove")]),
        typed=typed,
        stats_form=stats_form(texts=texts, parsed=parsed),
    )


def stats_form(*, texts: bool, parsed: Iterable[pa.Field]) -> str:
    """A short text that is the same for sidecars whose adds store statistics in the same columns.

    Args:
        texts: whether there is a column ``stats``.
        parsed: the typed columns. Their types follow the table's schema, which changes, so every
            detail of a type counts.
    """
    types = sorted(f"{field.name}: {field.type}" for field in parsed)
    # A short name for a long text, not a security measure.
    digest = hashlib.md5("\n".join(types).encode(), usedforsecurity=False).hexdigest()
    return "+".join([*(["json"] if texts else []), *([f"struct-{digest}"] if types else [])])


def clustered(files: Iterable[FileActionTable]) -> Iterator[SidecarRows]:
    """Sort file actions, given in any order, into the rows of sidecars.

    Args:
        files: tables of any size with the kind of their actions, with the columns of
            `action_schema`.
    """
    runs = {kind: _Run() for kind in ("add", "remove")}
    for kind, table in files:
        if table.num_rows:
            runs[kind].tables.append(table)
            runs[kind].size += table.nbytes
        if runs[kind].size >= _RUN_BYTES:
            yield from _split(kind, runs[kind].take())
    for kind, run in runs.items():
        if run.tables:
            yield from _split(kind, run.take())


class _Run:
    """Rows of one kind that are sorted together."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.size = 0

    def take(self) -> pa.Table:
        """The rows gathered so far; gathering starts again."""
        tables, self.tables, self.size = self.tables, [], 0
        return pa.concat_tables(tables).combine_chunks()


def _split(kind: str, run: pa.Table) -> Iterator[SidecarRows]:
    """Cut the sorted rows of a run into sidecars."""
    order = _by_path(run)
    if kind == "add":
        order, first_of_partition = _by_partition(run, order)
    else:
        order = _stably(order, _int64(deletion_times(run)))
        first_of_partition = np.empty(0, np.int64)
    start = 0
    for end in _ends(run.num_rows, first_of_partition):
        yield SidecarRows(kind, _Taken(run, int64_array(order[start:end])))
        start = end


class _Taken:
    """Rows of a run, in the order of the sidecar."""

    def __init__(self, run: pa.Table, rows: pa.Array) -> None:
        self._run = run
        self._rows = rows

    def __call__(self) -> pa.Table:
        return self._run.take(self._rows)


def _ends(rows: int, first_of_partition: npt.NDArray[np.int64]) -> Iterator[int]:
    """The ends of sidecars: evenly spaced, or at the end of a partition if one is near.

    Even spacing avoids a small sidecar at the end of a run.
    """
    start = 0
    while rows - start > SIDECAR_ROWS:
        even = (rows - start) / math.ceil((rows - start) / SIDECAR_ROWS)
        earliest = math.ceil(start + 0.75 * even)
        latest = min(start + math.floor(1.25 * even), start + SIDECAR_ROWS)
        near = first_of_partition[
            np.searchsorted(first_of_partition, earliest) : np.searchsorted(
                first_of_partition, latest, side="right"
            )
        ]
        middle = start + math.ceil(even)
        start = int(near[np.abs(near - middle).argmin()]) if len(near) else middle
        yield start
    yield rows


def _by_path(run: pa.Table) -> npt.NDArray[np.int64]:
    order = pc.sort_indices(run["path"])
    return int64_view(order.cast(pa.int64()))


def _by_partition(
    adds: pa.Table, order: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order of rows by partition, and the indices at which partitions begin."""
    ranks = [_ranks(adds["partitionValues"], name) for name in _partition_columns(adds)]
    # The last sort counts most, and each sort keeps the order of equal rows.
    for rank in reversed(ranks):
        order = _stably(order, rank)
    begins = np.zeros(max(len(order) - 1, 0), np.bool_)
    for rank in ranks:
        begins |= np.diff(rank[order]) != 0
    return order, np.flatnonzero(begins) + 1


def _stably(order: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return order[np.argsort(values[order], kind="stable")]


def _partition_columns(adds: pa.Table) -> list[str]:
    """The partition columns, from the maps of the adds, so that the schema isn't needed."""
    first: list[tuple[str, str | None]] | None = adds["partitionValues"][0].as_py()
    return [name for name, _ in first or ()]


def _ranks(maps: pa.ChunkedArray, name: str) -> npt.NDArray[np.int64]:
    """The rank of each value of a partition column among its distinct values; nulls come first."""
    texts = pc.map_lookup(maps, scalar_of(name, pa.string()), "first")
    flat = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    flat = flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
    encoded = flat.dictionary_encode()
    distinct = encoded.dictionary
    ranks = np.empty(len(distinct), np.int64)
    ranks[int64_view(pc.sort_indices(distinct).cast(pa.int64()))] = np.arange(len(distinct))
    codes = pc.coalesce(encoded.indices.cast(pa.int64()), scalar_of(-1, pa.int64()))
    codes = int64_view(codes)
    # The index -1, for null, selects the last element.
    return np.append(ranks, -1)[codes]


def _int64(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(int64_view(c) for c in column.chunks)])
