"""From a descriptor in the log to the set of deleted positions.

==============  ================================================================================
storage type    where the serialised set is
==============  ================================================================================
``i``           in the descriptor itself, as Z85
``u``           in ``<prefix>/deletion_vector_<uuid>.bin`` below the table; the last 20 characters
                of ``pathOrInlineDv`` are the UUID in Z85, what precedes them is the prefix
``p``           in the file at an absolute path, URI-encoded like the paths of files
==============  ================================================================================

A wrong set silently returns deleted rows or hides live ones. So everything that the descriptor and
the frame state is checked: version, size, checksum and cardinality.

Spec: PROTOCOL.md, "Deletion Vector Descriptor Schema" and "Derived Fields".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from airflow_delta.engine.deletion_vectors import file_format, roaring, z85
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeletionVectorError,
    InvalidArgumentError,
    ObjectNotFoundError,
)
from airflow_delta.engine.model.dv_descriptor import (
    ABSOLUTE_PATH,
    INLINE,
    RELATIVE_PATH,
    DeletionVectorDescriptor,
)
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["OpenUri", "read_deletion_vector", "relative_path"]

OpenUri: TypeAlias = Callable[[str], tuple[Storage, str]]
"""From a decoded absolute location to the storage that holds it and the path there."""

_UUID_CHARACTERS = 20

# Up to this offset the file's version is read in one go with the vector: the bytes between them
# cost less than a second round trip to an object store.
_READ_FROM_START = 64 * 1024


def read_deletion_vector(
    descriptor: DeletionVectorDescriptor,
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
) -> BitMap64:
    """Read and check a deletion vector.

    Args:
        descriptor: the vector's descriptor, from an ``add`` or ``remove``.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: finds the storage of an absolute, decoded location, such as
            ``storage.location.storage_for_uri`` does; needed for storage type ``p``.

    Returns:
        The positions of the deleted rows, from 0, in the physical order of the data file.

    Raises:
        DeletionVectorError: the descriptor is malformed, the file is missing, or the bytes are not
            what descriptor, frame or format promise.
        StorageError: the store failed otherwise.
    """
    try:
        return _read(descriptor, storage, open_uri)
    except (
        CorruptLogError,
        DeletionVectorError,
        InvalidArgumentError,
        ObjectNotFoundError,
    ) as error:
        raise DeletionVectorError(
            f"{_described(descriptor)} can't be read: {error.message}; restore the file, or the "
            "table to a version before it",
            table=table,
            path=_path_in_messages(descriptor),
            offset=descriptor.offset,
        ) from error


def relative_path(descriptor: DeletionVectorDescriptor) -> str:
    """The path of a deletion vector file below its table, for storage type ``u``.

    Raises:
        DeletionVectorError: the descriptor is of another type, or holds no UUID.
    """
    text = descriptor.path_or_inline_dv
    if descriptor.storage_type != RELATIVE_PATH:
        raise DeletionVectorError(
            f"storage type {descriptor.storage_type!r} has no path below the table: expected "
            f"{RELATIVE_PATH!r}"
        )
    prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    decoded = z85.decode(encoded)
    if len(decoded) != 16:
        raise DeletionVectorError(
            f"{text!r} holds no UUID: expected its last {_UUID_CHARACTERS} characters to stand for "
            f"16 bytes, found {len(decoded)}"
        )
    name = f"deletion_vector_{uuid.UUID(bytes=decoded)}.bin"
    return f"{prefix}/{name}" if prefix else name


def _read(
    descriptor: DeletionVectorDescriptor, storage: Storage, open_uri: OpenUri | None
) -> BitMap64:
    if descriptor.storage_type == INLINE:
        data = _inline_data(descriptor)
    else:
        data = _file_data(descriptor, *_locate(descriptor, storage, open_uri))
    bitmap = roaring.deserialize(data)
    if len(bitmap) != descriptor.cardinality:
        raise DeletionVectorError(
            f"it holds {len(bitmap)} positions, its descriptor states {descriptor.cardinality}"
        )
    return bitmap


def _locate(
    descriptor: DeletionVectorDescriptor, storage: Storage, open_uri: OpenUri | None
) -> tuple[Storage, str]:
    if descriptor.storage_type != ABSOLUTE_PATH:
        return storage, relative_path(descriptor)
    if open_uri is None:
        raise DeletionVectorError(
            "it has an absolute path, and the caller has given no access to files outside the table"
        )
    return open_uri(resolve(storage.root, descriptor.path_or_inline_dv))


def _offset(descriptor: DeletionVectorDescriptor) -> int:
    return file_format.FIRST_OFFSET if descriptor.offset is None else descriptor.offset


def _inline_data(descriptor: DeletionVectorDescriptor) -> bytes:
    data = z85.decode(descriptor.path_or_inline_dv)
    size = descriptor.size_in_bytes
    # The encoder pads to a multiple of four bytes; more or less than that is not this vector.
    if not size <= len(data) < size + 4:
        raise DeletionVectorError(
            f"it decodes to {len(data)} bytes, its descriptor states {size} and up to 3 are padding"
        )
    return data[:size]


def _file_data(descriptor: DeletionVectorDescriptor, storage: Storage, path: str) -> bytes:
    offset, size = _offset(descriptor), descriptor.size_in_bytes
    if offset < file_format.FIRST_OFFSET or size < 0:
        raise DeletionVectorError(
            f"its descriptor states offset {offset} and size {size}: expected an offset of at "
            f"least {file_format.FIRST_OFFSET} and no negative size"
        )
    length = size + file_format.FRAME_OVERHEAD
    if offset <= _READ_FROM_START:
        whole = storage.read(path, start=0, length=offset + length)
        file_format.check_version(whole)
        framed = whole[offset:]
    else:
        file_format.check_version(storage.read(path, start=0, length=1))
        framed = storage.read(path, start=offset, length=length)
    return file_format.unframe(framed, size=size)


def _described(descriptor: DeletionVectorDescriptor) -> str:
    path = _path_in_messages(descriptor)
    if descriptor.storage_type == INLINE:
        return f"the inline deletion vector {path}"
    return f"the deletion vector at offset {_offset(descriptor)} of {path}"


def _path_in_messages(descriptor: DeletionVectorDescriptor) -> str:
    """The file's path where the descriptor tells it, else what the descriptor holds, shortened."""
    text = descriptor.path_or_inline_dv
    if descriptor.storage_type == RELATIVE_PATH:
        try:
            return relative_path(descriptor)
        except DeletionVectorError:
            return repr(text)
    if descriptor.storage_type == INLINE and len(text) > 40:
        return f"{text[:40]}… ({len(text)} characters)"
    return text
