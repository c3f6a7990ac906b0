"""Make one file of several by copying their row groups, without decoding them.

Copying takes a tenth of the time of decoding and encoding. It is possible if the files are alike (one
schema, one writer, one codec), if no row has to go or to change, and if the columns have the types of the
table. It pays off unless the row groups are tiny: for each of them a reader has some work.

All else is written anew (`rewriting`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.parquet import PyarrowFallback, StitchedFile, StoredFile

__all__ = ["CopiedFiles", "plan_copy"]

_TINY = 512 << 10
"""A row group of fewer bytes is written anew, with others."""

_MAGIC = b"PAR1"

_FIELD_ID = b"PARQUET:field_id"

_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that only Arrow distinguishes: in Parquet they are the same."""


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """Files whose row groups can be copied into one file.

    Attributes:
        files: the files.
        stored: the row groups of each.
        target: what new files look like.
    """

    files: Sequence[DataFile]
    stored: Sequence[StoredFile]
    target: FileTarget

    def write(self, file: BinaryIO, bounds: Mapping[SchemaPath, tuple[Any, Any] | None]) -> str:
        """Write the file.

        Args:
            file: where.
            bounds: see ``known_bounds`` of `file_statistics`.

        Returns:
            The ``stats`` of the file.

        Raises:
            DataFileError: a file was changed since its footer was read.
            MissingFilesError, OutsidePathError, StorageError: a file can't be read, or the store failed.
        """
        stitched = StitchedFile(file)
        for source, stored in zip(self.files, self.stored, strict=True):
            for group, data in zip(stored.groups, source.read_groups(stored), strict=True):
                stitched.append(stored, group, data)
        # Arrow reads the new footer: one that it doesn't accept must not be committed.
        reader = pq.ParquetFile(pa.BufferReader(_MAGIC + stitched.close())).reader
        # Not the paths of the footer's schema, which are texts: names may have dots.
        leaves = {tuple(path): index for index, path in enumerate(reader.column_paths)}
        present = [c for c in self.target.statistics if c.path in leaves]
        names = {path[0] for path in leaves}
        return file_statistics(
            reader.metadata,
            [replace(column, leaf=leaves[column.path]) for column in present],
            prefix=self.target.prefix,
            states_tight_bounds=self.target.states_tight_bounds,
            known_bounds=bounds,
            absent=[c.path for c in self.target.statistics if c.path[0] not in names],
        )


def plan_copy(files: Sequence[DataFile], target: FileTarget) -> CopiedFiles | None:
    """Decide whether the row groups of some files can be copied into one file.

    Args:
        files: the files, none with a deletion vector.
        target: what new files look like.

    Returns:
        How; None if the rows must be decoded.

    Raises:
        DataFileError, MissingFilesError, OutsidePathError, StorageError: a file can't be read.
    """
    stitched = StitchedFile(io.BytesIO())
    stored: list[StoredFile] = []
    try:
        for file in files:
            found = file.stored()
            # Arrow reads the footer only now, so that `DataFile.read_groups` notices if it is another one.
            if not stored and not _has_columns_of(file, target):
                return None
            found = found._replace(groups=tuple(g for g in found.groups if g.num_rows))
            if not found.groups or any(group.length < _TINY for group in found.groups):
                return None
            stitched.expect(found)
            stored.append(found)
    except PyarrowFallback:
        return None
    hidden = target.hidden
    if hidden is not None and not all(_has_no_null(file, hidden) for file in files):
        return None
    return CopiedFiles(files, stored, target)


def _has_columns_of(file: DataFile, target: FileTarget) -> bool:
    """Whether the columns of a file are those of the table, in the same types. It may lack some.

    With column mapping by id, a scan finds columns by their ids, and the names in files may be any.
    Statistics have the physical names, as new files do, so a column that has another name can't be copied.
    """
    schema, footer = file.schema, file.footer.schema
    if any(footer.column(index).physical_type == "INT96" for index in range(len(footer))):
        return False
    found = {field.name: field for field in schema}
    folded = {name.lower() for name in found}
    if len(folded) < len(schema):
        return False
    names_by_id: dict[bytes, str] = {}
    if target.layout.mapping_mode == "id":
        ids = [(_id_of(field), field.name) for field in schema]
        names_by_id = {id_: name for id_, name in ids if id_ is not None}
        # A scan refuses a file without ids, with an error that says why.
        if not names_by_id or len(names_by_id) < sum(id_ is not None for id_, _ in ids):
            return False
    for field in target.schema:
        id_ = _id_of(field)
        if id_ is not None and names_by_id.get(id_, field.name) != field.name:
            return False
        own = found.get(field.name)
        if own is None:
            # A column that another engine would find ignoring the case; or one that must be there.
            if field.name.lower() in folded or field.name in target.layout.partition_columns:
                return False
        elif not _is_same_column(own, field):
            return False
    return True


def _id_of(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(_FIELD_ID)
    return found


def _is_same_column(stored: pa.Field, wanted: pa.Field) -> bool:
    """Whether a column has the same type and the same ids, at any depth."""
    ids = [_id_of(stored), _id_of(wanted)]
    if ids[1] is not None and ids[0] != ids[1]:
        return False
    left, right = _PLAIN.get(stored.type, stored.type), wanted.type
    if not pa.types.is_nested(right):
        return bool(left == right)
    if pa.types.is_large_list(left):
        left = pa.list_(left.value_field)
    if left.id != right.id or left.num_fields != right.num_fields:
        return False
    pairs = [(left.field(index), right.field(index)) for index in range(left.num_fields)]
    is_struct = pa.types.is_struct(right)
    return all((a.name == b.name or not is_struct) and _is_same_column(a, b) for a, b in pairs)


def _has_no_null(file: DataFile, names: Sequence[str]) -> bool:
    """Whether some columns of a file have a value in each row, by its footer."""
    footer = file.footer
    leaves = {footer.schema.column(index).path: index for index in range(len(footer.schema))}
    if not leaves.keys() >= set(names):
        return False
    chunks = (
        footer.row_group(group).column(leaves[name])
        for group in range(footer.num_row_groups)
        for name in names
    )
    return all(
        chunk.statistics is not None
        and chunk.statistics.has_null_count
        and chunk.statistics.null_count == 0
        for chunk in chunks
    )
