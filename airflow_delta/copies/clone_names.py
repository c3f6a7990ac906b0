"""What the files of a clone are called, so that it can be told what they are copies of.

A run of a clone copies files into a directory of its own below the target, ``clone-<uuid>``, so that a
run that fails can delete what it has copied, whatever other runs do. Behind that directory a file keeps the
path that it has below the root of its table; one from elsewhere gets a name made of its location::

    p=x/part-0.parquet                   clone-1b0f…/p=x/part-0.parquet
    s3://other/part-1.parquet            clone-1b0f…/elsewhere-<hash of the location>/part-1.parquet
    ab/deletion_vector_<uuid>.bin        clone-1b0f…/deletion_vector_<uuid>.bin

A file of deletion vectors keeps its UUID; one whose descriptor tells a location gets one made of that.

So by the path alone a later run knows what a file of the clone is a copy of; and files, and deletion
vectors, that others have committed to a clone show by their paths.

No PySpark here: whoever submits a clone looks at the target first.
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
    check_vector_paths,
    vector_paths,
)
from airflow_delta.engine.maintenance.table_files.locations import locations
from airflow_delta.engine.model.dv_descriptor import INLINE
from airflow_delta.engine.model.paths import resolve

__all__ = [
    "NamedFiles",
    "is_clone_leftover",
    "is_copied_file",
    "named_clone_files",
    "named_source_files",
    "strange_file",
    "vector_file",
]

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIRECTORY = rf"^clone-{_UUID}/"
_VECTOR_FILE = rf"{_DIRECTORY}deletion_vector_[0-9a-f-]{{36}}\.bin$"
_HASH_DIGITS = 32
# What the engine's stores call a file in the making, or on trial, where the first commit is to be.
_UNFINISHED_COMMIT = re.compile(
    rf"{LOG_DIRECTORY}/\.(?:0{{20}}\.(?:json|crc)\.{_UUID}|{_UUID}\.trial)\.tmp"
)


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files of a table or a clone, by what they are copies of, or would be. As many rows each.

    Attributes:
        files: rows of adds.
        names: the paths of the files below the directory of a run, decoded; of a clone null for
            those that no clone has committed.
        places: where the files are: below the root of the table, decoded, or their location.
        inside: whether they are below the root.
        uuids: of the files of their deletion vectors; null without one, or where it is inline.
        vectors: where these files are, like the places.
        vectors_inside: whether they are below the root.
    """

    files: pa.Table
    names: pa.ChunkedArray
    places: pa.ChunkedArray
    inside: pa.ChunkedArray
    uuids: pa.ChunkedArray
    vectors: pa.ChunkedArray
    vectors_inside: pa.ChunkedArray

    @property
    def keys(self) -> pa.ChunkedArray:
        """What tells one logical file from another: its name and its deletion vector."""
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
    """Whether a path below a table's root is one that a clone gives to its files."""
    return re.match(_DIRECTORY, path) is not None


def is_clone_leftover(path: str) -> bool:
    """Whether a file at a place without a table is what a clone has left that was killed.

    That may be files that it has copied, its commit in the making, or its marker.
    """
    return (
        is_copied_file(path)
        or is_unfinished(path)
        or _UNFINISHED_COMMIT.fullmatch(path) is not None
    )


def vector_file(name: str) -> str:
    """The name of a file of deletion vectors, by its UUID."""
    return f"deletion_vector_{name}.bin"


def strange_file(held: Snapshot) -> str | None:
    """A file of a clone that no clone has committed, as the log names it; None where there is none.

    Others have committed it, or the deletion vector that it has.

    Raises:
        DeltaError: the files can't be read.
    """
    named = named_clone_files(held.files(columns=("path", "deletionVector")), held.table)
    strange = named.files["path"].filter(named.names.is_null())
    return str(strange[0].as_py()) if len(strange) else None


def named_source_files(files: pa.Table, root: str) -> NamedFiles:
    """The files of a table that is to be cloned.

    Args:
        files: rows of adds.
        root: the table's location.

    Raises:
        DeltaError: a path, or a deletion vector's, can't be told.
    """
    below = locations(files["path"], root=root)
    inside = below.is_valid()
    places = _filled(below, files["path"], lambda path: resolve(root, path))
    names = _filled(below, places, _name_elsewhere)
    vectors_below, absolute = vector_paths(files["deletionVector"], table=root)
    check_vector_paths(vectors_below, table=root)
    vectors = _filled(vectors_below, absolute, lambda path: resolve(root, path))
    uuids = _filled(_uuids(vectors_below), vectors, _uuid_elsewhere)
    return NamedFiles(files, names, places, inside, uuids, vectors, vectors_below.is_valid())


def named_clone_files(files: pa.Table, root: str) -> NamedFiles:
    """The files of a clone.

    Args:
        files: rows of adds.
        root: the clone's location.

    Raises:
        DeltaError: see `named_source_files`.
    """
    places = locations(files["path"], root=root)
    vectors, absolute = vector_paths(files["deletionVector"], table=root)
    no, yes = (scalar_of(value, pa.bool_()) for value in (False, True))
    copied = pc.coalesce(pc.match_substring_regex(places, _DIRECTORY), no)
    vector_copied = pc.coalesce(pc.match_substring_regex(vectors, _VECTOR_FILE), yes)
    ours = pc.and_(pc.and_(copied, vector_copied), absolute.is_null())
    names = pc.replace_substring_regex(places, _DIRECTORY, "")
    return NamedFiles(
        files,
        pc.if_else(ours, names, scalar_of(None, pa.string())),
        places,
        places.is_valid(),
        _uuids(vectors),
        vectors,
        vectors.is_valid(),
    )


def _uuids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The UUIDs of files of deletion vectors: 36 characters in front of ``.bin``."""
    return pc.utf8_slice_codeunits(vectors, -40, -4)


def _filled(
    values: pa.ChunkedArray, others: pa.ChunkedArray, function: Callable[[str], str]
) -> pa.ChunkedArray:
    """The values, and where there is none a function of another one, unless that is null as well."""
    lacking = pc.and_(values.is_null(), others.is_valid())
    if not pc.any(lacking).as_py():
        return values
    # A loop over files outside of the root: clones have them, others don't.
    made = array_of([function(other) for other in others.filter(lacking).to_pylist()], pa.string())
    flat = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, pa.string())
    mask = pa.concat_arrays(lacking.chunks)
    return pa.chunked_array([pc.replace_with_mask(flat, mask, made)])


def _name_elsewhere(location: str) -> str:
    digest = hashlib.sha256(location.encode()).hexdigest()[:_HASH_DIGITS]
    return f"elsewhere-{digest}/{location.rpartition('/')[2]}"


def _uuid_elsewhere(location: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, location))
