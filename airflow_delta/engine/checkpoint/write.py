"""Write a classic checkpoint: one Parquet file of the V1 spec with the whole state of a version.

PROTOCOL.md, "Checkpoints", "V1 Spec": ``protocol``, ``metaData``, all live ``add``, the unexpired
``remove``, ``txn`` and ``domainMetadata`` actions, one a row. The file is laid out for readers who
want a part of it:

* the few actions that aren't files have a row group to themselves, so that opening a table reads
  some kilobytes whatever its size;
* adds and removes never share a row group, so that one kind is read without decoding the other;
* footers carry statistics of the leaves that tell row groups apart, pages carry checksums.

Adds and removes are streamed: a row group is in memory at a time. The file gets its name only when
everything has been written and counted; until then, and after any failure, there is no file.

What a caller answers for: that the protocol of the version lets us write, that the version's commit
exists (and is backfilled, where a commit owner ratifies it), and which tombstones and transactions
have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.checkpoint.layout import (
    DICTIONARY_LEAVES,
    STATISTICS_LEAVES,
    checkpoint_schema,
    file_structs,
    null_structs,
    small_structs,
)
from airflow_delta.engine.checkpoint.typed_columns import TypedColumns, typed_columns
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage

__all__ = ["CheckpointContent", "CheckpointWritten", "write_classic_checkpoint"]

_GROUP_ROWS = 100_000
_GROUP_BYTES = 256 << 20
"""A row group ends at whichever comes first. Bytes are those in memory, before encoding."""


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint that has been published.

    Attributes:
        version: the version of the table it holds.
        path: its path below the table's root.
        size_in_bytes: of the file.
        num_actions: how many actions, of any kind, it holds.
        num_adds: how many of them are adds.
        adds_size_sum: the sum of the sizes of the files added, in bytes.
    """

    version: int
    path: str
    size_in_bytes: int
    num_actions: int
    num_adds: int
    adds_size_sum: int


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """The state of a version, to be written.

    Attributes:
        protocol: the table's protocol.
        metadata: its metadata, whose properties decide in which form statistics are stored
            (``delta.checkpoint.writeStatsAsJson``, ``delta.checkpoint.writeStatsAsStruct``).
        transactions: the unexpired transaction identifiers.
        domains: the live domains; removed ones are left out.
        adds: the live files, columns as in `action_schema`, in tables of any size.
        removes: the unexpired tombstones, likewise.
        num_adds: how many adds there must be; None if nobody has counted.
        adds_size: what their sizes must come to, in bytes; None if nobody has summed them.
    """

    protocol: Protocol
    metadata: Metadata
    transactions: Sequence[Txn]
    domains: Sequence[DomainMetadata]
    adds: Iterable[pa.Table]
    removes: Iterable[pa.Table]
    num_adds: int | None = None
    adds_size: int | None = None


def write_classic_checkpoint(
    storage: Storage, content: CheckpointContent, *, version: int, table: str
) -> CheckpointWritten:
    """Write and publish the checkpoint of a version, in place of an earlier one of that name.

    Args:
        storage: the table's storage.
        content: the state of the version.
        version: the version of the table.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: an action lacks what the protocol requires of it.
        InvalidTableError: the adds aren't as many, or as large, as expected, or the metadata is
            broken. Nothing is published.
    """
    path = checkpoint_path(version)
    typed = typed_columns(content.protocol, content.metadata, table=table)
    texts = TableProperties(content.metadata.configuration, table).write_stats_as_json
    schema = checkpoint_schema(stats=texts, parsed=typed.fields if typed else ())
    with storage.writer(path, overwrite=True) as stream:
        with _new_file(stream, schema, table=table, version=version) as rows:
            rows.write_small(_small_actions(content))
            rows.write_files("add", content.adds, typed)
            rows.write_files("remove", content.removes)
        # Only what is counted right gets a name; an error abandons the file.
        _check(table, version, "live files", rows.num_adds, content.num_adds)
        _check(table, version, "bytes in live files", rows.adds_size_sum, content.adds_size)
        size = stream.tell()
    return CheckpointWritten(
        version, path, size, rows.num_actions, rows.num_adds, rows.adds_size_sum
    )


def _small_actions(content: CheckpointContent) -> dict[str, list[Mapping[str, Any]]]:
    return {
        "protocol": [_protocol_json(content.protocol)],
        "metaData": [content.metadata.to_json()],
        "txn": [txn.to_json() for txn in content.transactions],
        "domainMetadata": [d.to_json() for d in content.domains if not d.removed],
    }


def _protocol_json(protocol: Protocol) -> dict[str, Any]:
    """The protocol with its feature lists there where the versions want them, and only there.

    PROTOCOL.md, "Checkpoint Schema". A list left out would silently take features from the table.
    """
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": sorted(protocol.reader_features or ())
        if protocol.min_reader_version >= 3
        else None,
        "writerFeatures": sorted(protocol.writer_features or ())
        if protocol.min_writer_version >= 7
        else None,
    }


def _check(table: str, version: int, what: str, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise InvalidTableError(
            f"the checkpoint of version {version} was not written: it would hold {found} {what}, "
            f"and the version has {expected}. Load the version anew and try again",
            table=table,
            version=version,
            found=found,
            expected=expected,
        )


class _Rows:
    """A checkpoint in the making: actions in, row groups out, totals kept."""

    def __init__(self, stream: Any, schema: pa.Schema, *, table: str, version: int) -> None:
        self.num_actions = 0
        self.num_adds = 0
        self.adds_size_sum = 0
        self._table = table
        self._version = version
        self._schema = schema
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            # The fastest level is also the smallest here, and every reader of today knows zstd.
            compression="zstd",
            compression_level=1,
            use_dictionary=list(DICTIONARY_LEAVES),
            write_statistics=_statistics(schema),
            write_page_checksum=True,
            store_schema=False,
        )

    def write_small(self, actions: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """Write the actions that aren't files, as one row group."""
        columns = []
        total = sum(map(len, actions.values()))
        before = 0
        for field in self._schema:
            given = actions.get(field.name, [])
            after = total - before - len(given) if given else total - before
            parts = [null_structs(before, field.type)]
            if given:
                parts.append(small_structs(given, field.type))
                before += len(given)
            parts.append(null_structs(after, field.type))
            columns.append(pa.chunked_array(parts, type=field.type))
        self._write(pa.Table.from_arrays(columns, schema=self._schema))

    def write_files(
        self, kind: str, tables: Iterable[pa.Table], typed: TypedColumns | None = None
    ) -> None:
        """Write adds or removes, as row groups of their own."""
        type_ = self._schema.field(kind).type
        for group in _row_groups(tables):
            rows = typed.added_to(group) if typed else group
            try:
                structs = file_structs(rows, type_)
            except ValueError as error:
                raise CorruptLogError(
                    f"version {self._version} can't be checkpointed: its actions {kind!r} lack "
                    f"what the protocol requires: {error}",
                    table=self._table,
                    version=self._version,
                ) from error
            columns = [
                structs if field.name == kind else null_structs(len(structs), field.type)
                for field in self._schema
            ]
            self._write(pa.Table.from_arrays(columns, schema=self._schema))
            if kind == "add":
                self.num_adds += group.num_rows
                self.adds_size_sum += pc.sum(group["size"]).as_py()

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self.num_actions += rows.num_rows


def _statistics(schema: pa.Schema) -> list[str]:
    add = schema.field("add").type
    both = add.get_field_index("stats") >= 0 and add.get_field_index("stats_parsed") >= 0
    # Where the footer shows that the text is never missing, the typed form needn't be read.
    return [*STATISTICS_LEAVES, "add.stats"] if both else list(STATISTICS_LEAVES)


@contextmanager
def _new_file(stream: Any, schema: pa.Schema, *, table: str, version: int) -> Iterator[_Rows]:
    rows = _Rows(stream, schema, table=table, version=version)
    try:
        yield rows
    except BaseException:
        # The writer must be closed; what that writes, or fails to, is thrown away with the rest.
        with suppress(Exception):
            rows.close()
        raise
    rows.close()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables cut and joined to the size of row groups, one chunk a column where that is enough."""
    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        start = 0
        while start < table.num_rows:
            average = max(table.nbytes // table.num_rows, 1)
            room = min(_GROUP_ROWS - rows, max((_GROUP_BYTES - size) // average, 1))
            piece = table.slice(start, room)
            gathered.append(piece)
            start, rows, size = start + piece.num_rows, rows + piece.num_rows, size + piece.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield pa.concat_tables(gathered)
                gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_tables(gathered)
