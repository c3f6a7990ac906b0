"""The files of a clone: which are there, which are to be copied, and what the commit says of them.

What is there is known by its name (`clone_names`): files never change in a Delta table. Where the log tells
of one with the same name that it has another size or time all the same, it is another file.

* A file that is there with the same deletion vector stays where it is.
* One that has got another deletion vector stays, too; the vector is copied.
* What else has come to be said of it comes along: statistics that have been computed anew, tags, and who
  has clustered it. Row ids that the clone lacks are given out.
* All others are copied, and what the version doesn't have any more is removed.

Partition values, statistics, tags and the time of the last modification are as in the source; row ids are
the clone's own.
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
    named_clone_files,
    named_source_files,
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

__all__ = ["CloneFiles", "FileCopy", "clone_files"]

_UUID_DIGITS = 20
"""So many characters at the end of a descriptor are a UUID; what is before them is a directory."""


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to be copied, whole.

    Attributes:
        source: where it is: its path below the root of the table, or its location; decoded.
        inside: whether it is below the root of the table.
        target: the path of the copy below the root of the clone, decoded.
        size: its size in bytes, as the log has it; None where that doesn't tell.
        content: what it is to be; looked at while it is copied.
    """

    source: str
    inside: bool
    target: str
    size: int | None = None
    content: Content = "parquet"


@dataclass(frozen=True, slots=True)
class CloneFiles:
    """What is to be done to have the files of a version.

    Attributes:
        directory: where the files are copied to, below the root of the clone.
        copies: the files to be copied.
        adds: the files that join the clone, or that it has with other statistics.
        removes: the files that leave it.
        keys: the keys of the files that the clone has then; see `replay.file_key`.
        metrics: for ``operationMetrics``, under the names of Delta Spark.
    """

    directory: str
    copies: tuple[FileCopy, ...]
    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    keys: pa.ChunkedArray = field(repr=False)
    metrics: Mapping[str, int]


def clone_files(source: Snapshot, held: Snapshot | None, *, table: str) -> CloneFiles:
    """What is to be done to have the files of a version.

    Args:
        source: the version.
        held: the clone as it is, without strange files (`clone_names.strange_file`); None where there is
            none.
        table: the clone's location.

    Raises:
        DeltaError: the files of one of the two can't be read.
    """
    wanted = named_source_files(source.files(), source.table)
    nothing = wanted.files.schema.empty_table()
    there = named_clone_files(nothing if held is None else held.files(), table)
    matches = _Matches.of(wanted, there)
    directory = f"clone-{uuid.uuid4()}"
    is_parquet = source.metadata.format.provider.lower() == "parquet"
    copying = _Copying(directory, wanted, there, "parquet" if is_parquet else "other")
    joining = copying.joining(matches)
    numbers = ROW_TRACKING in supported_features(source.protocol) and not (
        source.properties.row_tracking_suspended
    )
    adds = (*joining, *_renewed(wanted, there, matches, numbers=numbers))
    staying = matches.of_clone.filter(matches.stay)
    removed = there.files.filter(pc.invert(pc.is_in(_row_numbers(there.files), value_set=staying)))
    kept = file_keys(there.files, table=table).take(staying)
    return CloneFiles(
        directory,
        (*copying.data, *copying.vectors.values()),
        adds,
        tuple(removal(add, data_change=True) for add in live_files(removed)),
        pa.chunked_array([*kept.chunks, *keys_of_files(joining, table=table).chunks], pa.string()),
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
    """Which files of the version the clone has. A row for each file of the version.

    Attributes:
        of_clone: the number of the clone's file with the same name and deletion vector; null for none.
        data: the number of the clone's file with the same data; null for none.
        stay: whether that with the same data has the same deletion vector, too.
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
    """What is copied, for the files that join a clone.

    Attributes:
        data: data files.
        vectors: files of deletion vectors, by their UUIDs: many files may share one.
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
        # What is in front of the UUIDs of deletion vectors that the clone has.
        have = there.uuids.is_valid()
        places = pc.struct_field(there.files["deletionVector"], "pathOrInlineDv").filter(have)
        uuids = there.uuids.filter(have).to_pylist()
        self._prefixes = {
            name: place[:-_UUID_DIGITS]
            for name, place in zip(uuids, places.to_pylist(), strict=True)
        }

    def joining(self, matches: _Matches) -> tuple[AddFile, ...]:
        """The adds of the files that join, and all that has to be copied for them."""
        joins, wanted = pc.invert(matches.stay), self._wanted
        columns = [
            column.filter(joins).to_pylist()
            for column in (
                wanted.names,
                wanted.places,
                wanted.inside,
                wanted.uuids,
                wanted.vectors,
                wanted.vectors_inside,
                self._paths.take(matches.data),
            )
        ]
        # A loop over files, each of which is copied or gets another deletion vector.
        return tuple(
            self._joining(add, *facts)
            for add, *facts in zip(live_files(wanted.files.filter(joins)), *columns, strict=True)
        )

    def _joining(
        self,
        add: AddFile,
        name: str,
        place: str,
        inside: bool,
        vector_uuid: str | None,
        vector: str,
        vector_inside: bool,
        held_path: str | None,
    ) -> AddFile:
        path = held_path
        if path is None:
            target = f"{self._directory}/{name}"
            self.data.append(FileCopy(place, inside, target, add.size, self._content))
            path = encode_path(target)
        descriptor = add.deletion_vector
        if descriptor is not None and vector_uuid is not None:
            descriptor = self._descriptor(descriptor, vector_uuid, vector, inside=vector_inside)
        return _of_clone(add, path, descriptor, data_change=True)

    def _descriptor(
        self, descriptor: DeletionVectorDescriptor, name: str, place: str, *, inside: bool
    ) -> DeletionVectorDescriptor:
        prefix = self._prefixes.get(name)
        if prefix is None:
            prefix = self._directory
            target = f"{self._directory}/{vector_file(name)}"
            copy = FileCopy(place, inside, target, content="deletion vectors")
            self.vectors.setdefault(name, copy)
        encoded = z85.encode(uuid.UUID(name).bytes)
        return replace(
            descriptor, storage_type=RELATIVE_PATH, path_or_inline_dv=f"{prefix}{encoded}"
        )


def _renewed(
    wanted: NamedFiles, there: NamedFiles, matches: _Matches, *, numbers: bool
) -> Iterator[AddFile]:
    """The adds of files that stay, of which the source tells something else, or that lack row ids.

    Args:
        wanted: the files of the version.
        there: the files of the clone.
        matches: which are the same.
        numbers: whether the files of the clone have row ids.
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
    """Which files have other tags than before; none and no tags are the same."""
    told = pc.or_(now.is_valid(), then.is_valid())
    if not pc.any(told).as_py():
        return told
    # A loop over files: Arrow compares no maps, whose order says nothing. Few writers set tags.
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
