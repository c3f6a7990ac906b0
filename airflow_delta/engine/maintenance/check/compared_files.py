"""Compare two sets of file actions in Arrow: whether they have the same files, with the same values.

Each file of one side is looked up among the keys of the other (`file_keys`) by a hash table, then the
columns of the common files are compared as a whole. Maps are compared key by key, since writers order their
entries differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.replay.file_key import file_keys

__all__ = ["FileDifferences", "compare_files"]


@dataclass(frozen=True, slots=True)
class FileDifferences:
    """The differences between two sets of file actions.

    Attributes:
        missing: the rows of expected files that don't exist.
        extra: the rows of files that aren't expected.
        differing: by column, the rows of files that both sides have with different values.
    """

    missing: pa.Table
    extra: pa.Table
    differing: Mapping[str, pa.Table]

    @property
    def any(self) -> bool:
        """Whether there is a difference."""
        return bool(self.missing.num_rows or self.extra.num_rows or self.differing)


def compare_files(found: pa.Table, expected: pa.Table, *, table: str) -> FileDifferences:
    """Compare file actions with the expected ones.

    Args:
        found: adds or removes, each file once.
        expected: the same, with the same columns.
        table: the table's location.
    """
    found_keys, expected_keys = _make_keys(found, table), _make_keys(expected, table)
    missing = expected.filter(pc.invert(pc.is_in(expected_keys, value_set=found_keys)))
    indexes = pc.index_in(found_keys, value_set=expected_keys)
    known = indexes.is_valid()
    columns = [name for name in found.column_names if name not in FILE_KEY_COLUMNS]
    # Without the paths, since `take` can't return more than 2 GB of text.
    ours, theirs = found.filter(known), expected.select(columns).take(indexes.filter(known))
    differing = {}
    for column in columns:
        unequal = pc.invert(_are_same(ours[column], theirs[column]))
        if pc.any(unequal).as_py():
            differing[column] = ours.filter(unequal)
    return FileDifferences(missing, found.filter(pc.invert(known)), differing)


def _make_keys(rows: pa.Table, table: str) -> pa.Array:
    # One array, so its offsets may need 64 bits.
    keys = file_keys(rows, table=table).cast(pa.large_string())
    return pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.nulls(0, pa.large_string())


def _are_same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether two columns have the same value, row by row. Null equals null."""
    if pa.types.is_map(left.type):
        return _are_same_maps(left, right)
    both_null = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both_null, pc.coalesce(pc.equal(left, right), scalar_of(False, pa.bool_())))


def _are_same_maps(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    names = {
        name
        for column in (left, right)
        for chunk in column.chunks
        for name in pc.unique(chunk.keys).to_pylist()
    }
    # A missing entry reads as null ("Partition Value Serialization"), so the lengths needn't agree.
    same = pc.equal(left.is_null(), right.is_null())
    for name in sorted(names):
        entries = (
            pc.map_lookup(column, scalar_of(name, pa.string()), "first") for column in (left, right)
        )
        same = pc.and_(same, _are_same(*entries))
    return same
