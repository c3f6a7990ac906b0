"""Encode rows of actions as Parquet in memory, a row group at a time.

All row groups of one schema are written in the same way. So `stitch` can combine them into one
file, together with row groups of existing checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.memory_pool import decoding_pool
from airflow_delta.engine.checkpoint.layout import (
    DICTIONARY_LEAVES,
    STATISTICS_LEAVES,
    action_structs,
    null_structs,
)
from airflow_delta.engine.parquet import StoredFile, StoredGroup, parse_stored_file, replace_columns

__all__ = ["FILE_KINDS", "EncodedFiles", "RowEncoder"]

FILE_KINDS = ("add", "remove")
"""The kinds of file actions."""


@dataclass(frozen=True, slots=True)
class EncodedFiles:
    """A row group of adds or of removes.

    Attributes:
        kind: ``"add"`` or ``"remove"``.
        file: the file with the row group, which may be in memory.
        group: the row group.
        data: its bytes.
        adds_size: the sum of the sizes of the files added, in bytes.
    """

    kind: str
    file: StoredFile
    group: StoredGroup
    data: Any
    adds_size: int


class RowEncoder:
    """Encodes rows of actions. For use by several threads.

    Args:
        schema: a struct for each kind of action; see `layout`.
    """

    def __init__(self, schema: pa.Schema) -> None:
        files = [leaf for kind in FILE_KINDS for leaf in _leaves(schema, kind)]
        self._schema = schema
        # The fastest level also gives the smallest files here, and all current readers support
        # zstd.
        self._compression = dict.fromkeys(files, "zstd")
        self._levels = dict.fromkeys(files, 1)
        self._statistics = _statistics(schema)
        # By kind, the row group that was encoded last with all columns.
        self._whole: dict[str, EncodedFiles] = {}

    def empty(self) -> pa.Buffer:
        """A file without rows."""
        return self._content(self._schema.empty_table())

    def non_file_actions(self, actions: Mapping[str, list[Mapping[str, Any]]]) -> pa.Buffer:
        """A file of the non-file actions, by kind."""
        columns = []
        total = sum(map(len, actions.values()))
        before = 0
        for field in self._schema:
            given = actions.get(field.name, [])
            after = total - before - len(given) if given else total - before
            parts = [null_structs(before, field.type)]
            if given:
                parts.append(action_structs(given, field.type))
                before += len(given)
            parts.append(null_structs(after, field.type))
            columns.append(pa.chunked_array(parts, type=field.type))
        return self._content(pa.Table.from_arrays(columns, schema=self._schema))

    def files(self, kind: str, structs: pa.ChunkedArray, *, adds_size: int) -> EncodedFiles:
        """A row group of adds or removes.

        Args:
            kind: ``"add"`` or ``"remove"``.
            structs: rows of its column, none of them null.
            adds_size: see `EncodedFiles`.
        """
        whole = self._whole.get(kind)
        if whole is None or whole.group.num_rows != len(structs):
            columns = [
                structs if field.name == kind else null_structs(len(structs), field.type)
                for field in self._schema
            ]
            files = self._encoded(
                kind, pa.Table.from_arrays(columns, schema=self._schema), adds_size
            )
            self._whole[kind] = files
            return files
        # The columns of the other kinds are nulls. As many nulls have been encoded before, and are
        # reused; encoding them is a third of the work.
        rows = pa.Table.from_arrays([structs], schema=pa.schema([self._schema.field(kind)]))
        own = self._encoded(kind, rows, adds_size)
        group, data = replace_columns(
            whole.group, whole.data, replacement=own.group, replacement_data=own.data
        )
        return EncodedFiles(kind, whole.file, group, data, adds_size)

    def _encoded(self, kind: str, rows: pa.Table, adds_size: int) -> EncodedFiles:
        content = self._content(rows)
        file = parse_stored_file(content)
        (group,) = file.groups
        data = memoryview(content)[group.start : group.start + group.length]
        return EncodedFiles(kind, file, group, data, adds_size)

    def _content(self, rows: pa.Table) -> pa.Buffer:
        """A file with one row group; with none if there are no rows."""
        # The default pool would zero huge pages, and keep them.
        pool = decoding_pool()
        sink = pa.BufferOutputStream(pool)
        with pq.ParquetWriter(
            sink,
            rows.schema,
            compression=self._compression,
            compression_level=self._levels,
            use_dictionary=list(DICTIONARY_LEAVES),
            write_statistics=self._statistics,
            write_page_checksum=True,
            store_schema=False,
            memory_pool=pool,
        ) as writer:
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)
        return sink.getvalue()


def _leaves(schema: pa.Schema, kind: str) -> list[str]:
    """The leaves of a column, by their names in Parquet."""
    return [".".join((kind, *path)) for path in _leaf_paths(schema.field(kind).type)]


def _leaf_paths(type_: pa.DataType) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(type_):
        for field in type_:
            for path in _leaf_paths(field.type):
                yield (field.name, *path)
    elif pa.types.is_map(type_):
        yield ("key_value", "key")
        for path in _leaf_paths(type_.item_type):
            yield ("key_value", "value", *path)
    else:
        yield ()


def _statistics(schema: pa.Schema) -> list[str]:
    add = schema.field("add").type
    both = add.get_field_index("stats") >= 0 and add.get_field_index("stats_parsed") >= 0
    # If the footer shows that the text is never missing, readers needn't read the typed form.
    return [*STATISTICS_LEAVES, "add.stats"] if both else list(STATISTICS_LEAVES)
