"""The names of the files of a clone. A name shows which file of the source it is a copy of.

Each run copies into a new directory ``clone-<uuid>`` below the target, so that a failed run can
delete its own files only. Below that directory a file keeps its path below the root of the source.
A file outside the root gets a name with a hash of its location::

    p=x/part-0.parquet                   clone-1b0f…/p=x/part-0.parquet
    s3://other/part-1.parquet            clone-1b0f…/elsewhere-<hash of the location>/part-1.parquet
    ab/deletion_vector_<uuid>.bin        clone-1b0f…/deletion_vector_<uuid>.bin

A deletion vector file keeps its UUID; one outside the root gets a UUID derived from its location.

So a later run recognises each copy by its path, and also files and deletion vectors that others
have committed to the clone.

No PySpark here: the operator checks the target before it starts Spark.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.copies.deletion_list import is_unfinished
from airflow_delta.engine import Snapshot
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    check_deletion_vector_paths,
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.locations import locate_paths
from airflow_delta.engine.model.dv_descriptor import INLINE
from airflow_delta.engine.model.paths import resolve

__all__ = [
    "NamedFiles",
    "find_foreign_file",
    "is_clone_leftover",
    "is_copied_file",
    "name_clone_files",
    "name_source_files",
    "vector_file",
]

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIRECTORY = rf"^clone-{_UUID}/"
_VECTOR_FILE = rf"{_DIRECTORY}deletion_vector_[0-9a-f-]{{36}}\.bin$"
_HASH_DIGITS = 32
# The temporary files of the engine's storages for the first commit, and for a test of the store.
_UNFINISHED_COMMIT = re.compile(
    rf"{LOG_DIRECTORY}/\.(?:0{{20}}\.(?:json|crc)\.{_UUID}|{_UUID}\.trial)\.tmp"
)


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files of a source or a clone, with the names that their copies have. Columns of equal length.

    Attributes:
        files: rows of ``add`` actions.
        names: the paths below the ``clone-<uuid>`` directory, decoded; for a clone, null for files that no
            clone has committed.
        paths: the paths of the files below the root of the table, decoded, or else their locations.
        inside: whether they are below the root.
        uuids: the UUIDs of their deletion vector files; null without one, or if it is inline.
        vectors: the paths or locations of these files, like ``paths``.
        vectors_inside: whether they are below the root.
    """

    files: pa.Table
    names: pa.ChunkedArray
    paths: pa.ChunkedArray
    inside: pa.ChunkedArray
    uuids: pa.ChunkedArray
    vectors: pa.ChunkedArray
    vectors_inside: pa.ChunkedArray

    @property
    def keys(self) -> pa.ChunkedArray:
        """The keys of the logical files: name and deletion vector."""
        descriptors = self.files["deletionVector"]
        kinds = pc.struct_field(descriptors, "storageType")
        offsets = pc.cast(pc.struct_field(descriptors, "offset"), pa.string())
        in_file = joined_text(self.uuids, "@", pc.coalesce(offsets, scalar_of("", pa.string())))
        inline = pc.if_else(
            pc.equal(kinds, scalar_of(INLINE, pa.string())),
            pc.struct_field(descriptors, "pathOrInlineDv"),
            scalar_of(None, pa.string()),
        )
        vector = pc.coalesce(in_file, inline, scalar_of("", pa.string()))
        return joined_text(self.names, "\0", vector)


def is_copied_file(path: str) -> bool:
    """Whether a path below a table's root has the form of a clone's files."""
    return re.match(_DIRECTORY, path) is not None


def is_clone_leftover(path: str) -> bool:
    """Whether a file at a location without a table was left by a killed clone.

    It may be a copied file, or a temporary file of its commit or its marker.
    """
    return (
        is_copied_file(path)
        or is_unfinished(path)
        or _UNFINISHED_COMMIT.fullmatch(path) is not None
    )


def vector_file(name: str) -> str:
    """The name of a deletion vector file, by its UUID."""
    return f"deletion_vector_{name}.bin"


def find_foreign_file(held: Snapshot) -> str | None:
    """Find a file of a clone that others have committed, or whose deletion vector others have.

    Returns:
        Its path in the log, or None.

    Raises:
        DeltaError: the files can't be read.
    """
    named = name_clone_files(held.files(columns=("path", "deletionVector")), held.table)
    foreign = named.files["path"].filter(named.names.is_null())
    return str(foreign[0].as_py()) if len(foreign) else None


def name_source_files(files: pa.Table, root: str) -> NamedFiles:
    """Name the files of a table that is to be cloned.

    Args:
        files: rows of ``add`` actions.
        root: the table's location.

    Raises:
        DeltaError: the path of a file or a deletion vector is invalid.
    """
    below = locate_paths(files["path"], root=root)
    inside = below.is_valid()
    paths = _fill_nulls(below, files["path"], lambda path: resolve(root, path))
    names = _fill_nulls(below, paths, _name_elsewhere)
    vectors_below, absolute = locate_deletion_vectors(files["deletionVector"], table=root)
    check_deletion_vector_paths(vectors_below, table=root)
    vectors = _fill_nulls(vectors_below, absolute, lambda path: resolve(root, path))
    uuids = _fill_nulls(_uuids(vectors_below), vectors, _uuid_elsewhere)
    return NamedFiles(files, names, paths, inside, uuids, vectors, vectors_below.is_valid())


def name_clone_files(files: pa.Table, root: str) -> NamedFiles:
    """Find out the names of the files of a clone.

    Args:
        files: rows of ``add`` actions.
        root: the clone's location.

    Raises:
        DeltaError: see `name_source_files`.
    """
    paths = locate_paths(files["path"], root=root)
    vectors, absolute = locate_deletion_vectors(files["deletionVector"], table=root)
    no, yes = (scalar_of(value, pa.bool_()) for value in (False, True))
    copied = pc.coalesce(pc.match_substring_regex(paths, _DIRECTORY), no)
    vector_copied = pc.coalesce(pc.match_substring_regex(vectors, _VECTOR_FILE), yes)
    ours = pc.and_(pc.and_(copied, vector_copied), absolute.is_null())
    names = pc.replace_substring_regex(paths, _DIRECTORY, "")
    return NamedFiles(
        files,
        pc.if_else(ours, names, scalar_of(None, pa.string())),
        paths,
        paths.is_valid(),
        _uuids(vectors),
        vectors,
        vectors.is_valid(),
    )


def _uuids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The UUIDs of deletion vector files: the 36 characters before ``.bin``."""
    return pc.utf8_slice_codeunits(vectors, -40, -4)


def _fill_nulls(
    values: pa.ChunkedArray, others: pa.ChunkedArray, function: Callable[[str], str]
) -> pa.ChunkedArray:
    """Replace null values with ``function(other)``, unless the other one is null as well."""
    lacking = pc.and_(values.is_null(), others.is_valid())
    if not pc.any(lacking).as_py():
        return values
    # A Python loop, over files outside the root only: shallow clones have them, few other tables do.
    made = array_of([function(other) for other in others.filter(lacking).to_pylist()], pa.string())
    flat = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, pa.string())
    mask = pa.concat_arrays(lacking.chunks)
    return pa.chunked_array([pc.replace_with_mask(flat, mask, made)])


def _name_elsewhere(location: str) -> str:
    digest = hashlib.sha256(location.encode()).hexdigest()[:_HASH_DIGITS]
    return f"elsewhere-{digest}/{location.rpartition('/')[2]}"


def _uuid_elsewhere(location: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, location))
