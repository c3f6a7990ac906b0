"""Plan which files a clone copies, keeps, adds and removes.

Files of a Delta table never change, so the clone recognises its copies by their names
(`clone_names`), sizes and modification times.

* A file that the clone has, with the same deletion vector, stays as it is.
* If only the deletion vector differs, the data file stays, and only that is copied.
* If only statistics, tags or the clustering provider differ, or row ids are missing, the file is
  added again without being copied.
* All other files of the version are copied; files that the version doesn't have are removed.

Partition values, statistics, tags and modification times are as in the source. Row ids are the
clone's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.copies.clone_names import (
    NamedFiles,
    name_clone_files,
    name_source_files,
    vector_file,
)
from airflow_delta.engine import AddFile, RemoveFile, Snapshot
from airflow_delta.engine.arrow.numpy_arrays import int32_array
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.model.dv_descriptor import RELATIVE_PATH, DeletionVectorDescriptor
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.spark.copy.copied_content import Content
from airflow_delta.spark.writer.log_actions import live_files, removal

__all__ = ["CloneFiles", "FileCopy", "plan_clone_files"]

_UUID_DIGITS = 20
"""The length of the encoded UUID at the end of a descriptor's path; a directory may precede it."""


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to be copied, whole.

    Attributes:
        source: its path below the root of the table, or else its location; decoded.
        inside: whether it is below the root of the table.
        target: the path of the copy below the root of the clone, decoded.
        size: its size in bytes according to the log; None if the log doesn't contain it.
        content: the kind of file that it must be; checked while it is copied.
    """

    source: str
    inside: bool
    target: str
    size: int | None = None
    content: Content = "parquet"


@dataclass(frozen=True, slots=True)
class CloneFiles:
    """The changes that give a clone the files of a version.

    Attributes:
        directory: the directory below the root of the clone that receives the copies.
        copies: the files to be copied.
        adds: the ``add`` actions: new files, and files whose statistics, tags or row ids change.
        removes: the ``remove`` actions.
        keys: the keys of the clone's files after the commit; see `replay.file_key`.
        metrics: ``operationMetrics``, named as in Delta Spark.
    """

    directory: str
    copies: tuple[FileCopy, ...]
    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    keys: pa.ChunkedArray = field(repr=False)
    metrics: Mapping[str, int]


def plan_clone_files(source: Snapshot, held: Snapshot | None, *, table: str) -> CloneFiles:
    """Compare the files of a version with those of a clone, and plan the changes.

    Args:
        source: the version.
        held: the clone as it is, without foreign files (`clone_names.find_foreign_file`); None if
            it doesn't exist yet.
        table: the clone's location.

    Raises:
        DeltaError: the files of one of the two can't be read.
    """
    wanted = name_source_files(source.files(), source.table)
    nothing = wanted.files.schema.empty_table()
    there = name_clone_files(nothing if held is None else held.files(), table)
    matches = _Matches.of(wanted, there)
    directory = f"clone-{uuid.uuid4()}"
    is_parquet = source.metadata.format.provider.lower() == "parquet"
    copying = _Copying(directory, wanted, there, "parquet" if is_parquet else "other")
    new = copying.add_new_files(matches)
    numbers = ROW_TRACKING in supported_features(source.protocol) and not (
        source.properties.row_tracking_suspended
    )
    adds = (*new, *_changed_adds(wanted, there, matches, numbers=numbers))
    staying = matches.of_clone.filter(matches.stay)
    removed = there.files.filter(pc.invert(pc.is_in(_row_numbers(there.files), value_set=staying)))
    kept = file_keys(there.files, table=table).take(staying)
    return CloneFiles(
        directory,
        (*copying.data, *copying.vectors.values()),
        adds,
        tuple(removal(add, data_change=True) for add in live_files(removed)),
        pa.chunked_array([*kept.chunks, *keys_of_files(new, table=table).chunks], pa.string()),
        {
            "sourceTableSize": source.size_in_bytes,
            "sourceNumOfFiles": source.num_files,
            "numRemovedFiles": removed.num_rows,
            "removedFilesSize": pc.sum(removed["size"]).as_py() or 0,
            "numCopiedFiles": len(copying.data),
            "copiedFilesSize": sum(copy.size or 0 for copy in copying.data),
        },
    )


@dataclass(frozen=True, slots=True)
class _Matches:
    """The files of the version that the clone has. Each column has a row per file of the version.

    Attributes:
        of_clone: the row number of the clone's file with the same name and deletion vector, or
            null.
        data: the row number of the clone's file with the same data, or null.
        stay: whether the file with the same data also has the same deletion vector.
    """

    of_clone: pa.ChunkedArray
    data: pa.ChunkedArray
    stay: pa.ChunkedArray

    @classmethod
    def of(cls, wanted: NamedFiles, there: NamedFiles) -> _Matches:
        """Compare names, sizes and times."""
        named = pc.index_in(wanted.names, value_set=there.names)
        alike = named.is_valid()
        for column in ("size", "modificationTime"):
            equal = pc.equal(wanted.files[column], there.files[column].take(named))
            alike = pc.and_(alike, pc.coalesce(equal, scalar_of(False, pa.bool_())))
        keyed = pc.index_in(wanted.keys, value_set=there.keys)
        data = pc.if_else(alike, named, scalar_of(None, pa.int32()))
        return cls(keyed, data, pc.and_(alike, keyed.is_valid()))


class _Copying:
    """Collects the files to be copied for the files that are new in a clone.

    Attributes:
        data: data files.
        vectors: deletion vector files, by UUID: many data files may share one.
    """

    def __init__(
        self, directory: str, wanted: NamedFiles, there: NamedFiles, content: Content
    ) -> None:
        self._directory = directory
        self._content: Content = content
        self._wanted = wanted
        self._paths = there.files["path"]
        self.data: list[FileCopy] = []
        self.vectors: dict[str, FileCopy] = {}
        # The directories of the deletion vector files that the clone has, by UUID.
        have = there.uuids.is_valid()
        paths = pc.struct_field(there.files["deletionVector"], "pathOrInlineDv").filter(have)
        uuids = there.uuids.filter(have).to_pylist()
        self._prefixes = {
            name: path[:-_UUID_DIGITS] for name, path in zip(uuids, paths.to_pylist(), strict=True)
        }

    def add_new_files(self, matches: _Matches) -> tuple[AddFile, ...]:
        """Return the ``add`` actions of the new files, and collect what must be copied for them."""
        joins, wanted = pc.invert(matches.stay), self._wanted
        columns = [
            column.filter(joins).to_pylist()
            for column in (
                wanted.names,
                wanted.paths,
                wanted.inside,
                wanted.uuids,
                wanted.vectors,
                wanted.vectors_inside,
                self._paths.take(matches.data),
            )
        ]
        # A loop over files, each of which is copied or gets another deletion vector.
        return tuple(
            self._add_file(add, *facts)
            for add, *facts in zip(live_files(wanted.files.filter(joins)), *columns, strict=True)
        )

    def _add_file(
        self,
        add: AddFile,
        name: str,
        source: str,
        inside: bool,
        vector_uuid: str | None,
        vector: str,
        vector_inside: bool,
        held_path: str | None,
    ) -> AddFile:
        path = held_path
        if path is None:
            target = f"{self._directory}/{name}"
            self.data.append(FileCopy(source, inside, target, add.size, self._content))
            path = encode_path(target)
        descriptor = add.deletion_vector
        if descriptor is not None and vector_uuid is not None:
            descriptor = self._descriptor(descriptor, vector_uuid, vector, inside=vector_inside)
        return _of_clone(add, path, descriptor, data_change=True)

    def _descriptor(
        self, descriptor: DeletionVectorDescriptor, name: str, source: str, *, inside: bool
    ) -> DeletionVectorDescriptor:
        prefix = self._prefixes.get(name)
        if prefix is None:
            prefix = self._directory
            target = f"{self._directory}/{vector_file(name)}"
            copy = FileCopy(source, inside, target, content="deletion vectors")
            self.vectors.setdefault(name, copy)
        encoded = z85.encode(uuid.UUID(name).bytes)
        return replace(
            descriptor, storage_type=RELATIVE_PATH, path_or_inline_dv=f"{prefix}{encoded}"
        )


def _changed_adds(
    wanted: NamedFiles, there: NamedFiles, matches: _Matches, *, numbers: bool
) -> Iterator[AddFile]:
    """The ``add`` actions of files that stay but whose statistics, tags or row ids change.

    Args:
        wanted: the files of the version.
        there: the files of the clone.
        matches: which of them are the same.
        numbers: whether the clone assigns row ids.
    """
    of_clone, before = matches.of_clone, there.files.take(matches.of_clone)
    no_text = scalar_of("", pa.string())
    other = _tags_differ(wanted.files["tags"], before["tags"])
    for name in ("stats", "clusteringProvider"):
        now, then = (pc.coalesce(files[name], no_text) for files in (wanted.files, before))
        other = pc.or_(other, pc.not_equal(now, then))
    if numbers:
        other = pc.or_(other, before["baseRowId"].is_null())
    renewed = pc.and_(matches.stay, pc.coalesce(other, scalar_of(False, pa.bool_())))
    held = live_files(there.files.take(of_clone.filter(renewed)))
    for add, file in zip(live_files(wanted.files.filter(renewed)), held, strict=True):
        yield _of_clone(add, file.path, file.deletion_vector, data_change=False)


def _tags_differ(now: pa.ChunkedArray, then: pa.ChunkedArray) -> pa.ChunkedArray | pa.Scalar:
    """Whether the tags of each file differ; null and an empty map are equal."""
    has_tags = pc.or_(now.is_valid(), then.is_valid())
    if not pc.any(has_tags).as_py():
        return has_tags
    # A Python loop over files: Arrow can't compare maps regardless of order. Few writers set tags.
    pairs = zip(now.to_pylist(), then.to_pylist(), strict=True)
    return array_of([dict(new or ()) != dict(old or ()) for new, old in pairs], pa.bool_())


def _of_clone(
    add: AddFile, path: str, descriptor: DeletionVectorDescriptor | None, *, data_change: bool
) -> AddFile:
    return replace(
        add,
        path=path,
        deletion_vector=descriptor,
        data_change=data_change,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _row_numbers(files: pa.Table) -> pa.Array:
    return int32_array(np.arange(files.num_rows, dtype=np.int32))
