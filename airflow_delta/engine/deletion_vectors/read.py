"""Read deletion vectors by their descriptors.

==============  ================================================================================
storage type    where the serialised set is
==============  ================================================================================
``i``           in the descriptor itself, as Z85
``u``           in ``<prefix>/deletion_vector_<uuid>.bin`` below the table. The last 20 characters
                of ``pathOrInlineDv`` are the UUID in Z85; the text before them is the prefix
``p``           in the file at an absolute path, URI-encoded like the paths of files
==============  ================================================================================

A wrong set would silently return deleted rows or hide live ones. So everything in the descriptor and the
frame is checked: version, size, checksum and cardinality. Vectors that are close together are read at once
(`read_plan`).

Spec: PROTOCOL.md, "Deletion Vector Descriptor Schema" and "Derived Fields".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from airflow_delta.engine.deletion_vectors import file_format, roaring, z85
from airflow_delta.engine.deletion_vectors.read_plan import Extent, Span, plan_reads
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeletionVectorError,
    DeltaError,
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
from airflow_delta.engine.remedies import PUT_VECTOR_BACK
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = [
    "OpenUri",
    "decode_uuid_path",
    "describe_deletion_vector",
    "get_relative_path",
    "read_deletion_vectors",
]

OpenUri: TypeAlias = Callable[[str], tuple[Storage, str]]
"""Finds the storage of a decoded, absolute location, and the path in it."""

_UUID_CHARACTERS = 20
_THREADS = 16
_INT_LIMIT = 1 << 31

_UNREADABLE = (CorruptLogError, DeletionVectorError, InvalidArgumentError, ObjectNotFoundError)


def read_deletion_vectors(
    descriptors: Sequence[DeletionVectorDescriptor],
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
) -> list[BitMap64]:
    """Read and check deletion vectors.

    Args:
        descriptors: the descriptors, each from an ``add`` or ``remove``.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: finds the storage of an absolute location, like `FileAccess.locate`; needed for storage
            type ``p``.

    Returns:
        For each descriptor the positions of the deleted rows, from 0, in the physical order of the data
        file.

    Raises:
        DeletionVectorError: a descriptor is malformed, a file is missing, or the bytes don't match the
            descriptor, the frame or the format.
        OutsidePathError: an absolute path is one that the table may not read.
        StorageError: the store failed otherwise.
    """
    return _Reader(descriptors, storage, table, open_uri).read()


def get_relative_path(descriptor: DeletionVectorDescriptor) -> str:
    """Return the path of a deletion vector file below its table, for storage type ``u``.

    Raises:
        DeletionVectorError: the descriptor has another storage type or no UUID, or its prefix leads out of
            the table or isn't a valid name.
    """
    if descriptor.storage_type != RELATIVE_PATH:
        raise DeletionVectorError(
            f"storage type {descriptor.storage_type!r} has no path below the table: expected "
            f"{RELATIVE_PATH!r}"
        )
    path = decode_uuid_path(descriptor.path_or_inline_dv)
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise DeletionVectorError(
            f"the path {path!r} names no file below the table: expected a relative path without '..'"
        )
    return path


def decode_uuid_path(text: str) -> str:
    """Decode a ``pathOrInlineDv`` of storage type ``u`` to a path, which may lead out of the table.

    Raises:
        DeletionVectorError: it has no UUID.
    """
    prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    decoded = z85.decode(encoded)
    if len(decoded) != 16:
        raise DeletionVectorError(
            f"{text!r} holds no UUID: expected its last {_UUID_CHARACTERS} characters to stand for "
            f"16 bytes, found {len(decoded)}"
        )
    name = f"deletion_vector_{uuid.UUID(bytes=decoded)}.bin"
    return f"{prefix}/{name}" if prefix else name


class _Read(NamedTuple):
    """A range of a file to read."""

    storage: Storage
    path: str
    span: Span


class _Reader:
    """Reads deletion vectors. They are identified by their index in the list of descriptors."""

    def __init__(
        self,
        descriptors: Sequence[DeletionVectorDescriptor],
        storage: Storage,
        table: str,
        open_uri: OpenUri | None,
    ) -> None:
        self._descriptors = descriptors
        self._storage = storage
        self._table = table
        self._open_uri = open_uri
        self._storages: dict[str, Storage] = {}

    def read(self) -> list[BitMap64]:
        """Read all vectors, in the order of the descriptors."""
        found: dict[int, BitMap64] = {}
        files: dict[tuple[str, str], list[int]] = {}
        for number, descriptor in enumerate(self._descriptors):
            if descriptor.storage_type == INLINE:
                found[number] = self._read_inline(number)
            else:
                file = (descriptor.storage_type, descriptor.path_or_inline_dv)
                files.setdefault(file, []).append(number)
        # Threads hide the latency of remote stores. On a file system they would mostly wait for each other.
        if self._storage.capabilities.remote and len(self._descriptors) > 1:
            with ThreadPoolExecutor(_THREADS) as pool:
                found.update(self._read_files(files.values(), pool.map))
        else:
            found.update(self._read_files(files.values(), map))
        return [found[number] for number in range(len(self._descriptors))]

    def _read_files(
        self, files: Iterable[Sequence[int]], each: Callable[..., Iterable[Any]]
    ) -> Iterator[tuple[int, BitMap64]]:
        reads = chain.from_iterable(each(self._plan, files))
        return chain.from_iterable(each(self._read_span, reads))

    def _read_inline(self, number: int) -> BitMap64:
        descriptor = self._descriptors[number]
        try:
            return _deserialize(_decode_inline(descriptor), descriptor)
        except _UNREADABLE as error:
            raise self._explain(error, number) from error

    def _plan(self, numbers: Sequence[int]) -> list[_Read]:
        """Plan what to read for several vectors of one file."""
        number, extents = numbers[0], []
        try:
            storage, path = _locate(self._descriptors[number], self._storage, self._open_uri)
            # Reuse the storage of a location, because each storage has its own connections.
            storage = self._storages.setdefault(storage.canonical_location, storage)
            for number in numbers:  # an error is about the last number
                extents.append(_extent(self._descriptors[number], number))
        except _UNREADABLE as error:
            raise self._explain(error, number) from error
        return [_Read(storage, path, span) for span in plan_reads(extents)]

    def _read_span(self, read: _Read) -> list[tuple[int, BitMap64]]:
        span, found = read.span, []
        number = span.number
        try:
            data = read.storage.read(read.path, start=span.start, length=span.end - span.start)
            if span.start == 0:
                file_format.check_version(data)
            for extent in span.extents:
                number = extent.number
                descriptor = self._descriptors[number]
                framed = data[extent.start - span.start : extent.end - span.start]
                vector = file_format.unframe(framed, size=descriptor.size_in_bytes)
                found.append((number, _deserialize(vector, descriptor)))
        except _UNREADABLE as error:
            raise self._explain(error, number) from error
        return found

    def _explain(self, error: DeltaError, number: int) -> DeletionVectorError:
        descriptor = self._descriptors[number]
        return DeletionVectorError(
            f"{describe_deletion_vector(descriptor)} can't be read: {error.message}; {PUT_VECTOR_BACK}",
            table=self._table,
            path=_path_in_messages(descriptor),
            offset=descriptor.offset,
        )


def _deserialize(data: bytes, descriptor: DeletionVectorDescriptor) -> BitMap64:
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
        return storage, get_relative_path(descriptor)
    if open_uri is None:
        raise DeletionVectorError(
            "it has an absolute path, and the caller has given no access to files outside the table"
        )
    return open_uri(resolve(storage.root, descriptor.path_or_inline_dv))


def _offset(descriptor: DeletionVectorDescriptor) -> int:
    return file_format.FIRST_OFFSET if descriptor.offset is None else descriptor.offset


def _decode_inline(descriptor: DeletionVectorDescriptor) -> bytes:
    data = z85.decode(descriptor.path_or_inline_dv)
    size = descriptor.size_in_bytes
    # The encoder pads to a multiple of four bytes. Any other length is an error.
    if not size <= len(data) < size + 4:
        raise DeletionVectorError(
            f"it decodes to {len(data)} bytes, its descriptor states {size} and up to 3 are padding"
        )
    return data[:size]


def _extent(descriptor: DeletionVectorDescriptor, number: int) -> Extent:
    """Return the range of the vector's frame in its file."""
    offset, size = _offset(descriptor), descriptor.size_in_bytes
    if not file_format.FIRST_OFFSET <= offset < _INT_LIMIT or not 0 <= size < _INT_LIMIT:
        raise DeletionVectorError(
            f"its descriptor states offset {offset} and size {size}: expected an offset of at "
            f"least {file_format.FIRST_OFFSET}, no negative size, and numbers of 32 bits"
        )
    return Extent(offset, offset + size + file_format.FRAME_OVERHEAD, number)


def describe_deletion_vector(descriptor: DeletionVectorDescriptor) -> str:
    """Describe a deletion vector for messages: its file and offset, or its first characters."""
    path = _path_in_messages(descriptor)
    if descriptor.storage_type == INLINE:
        return f"the inline deletion vector {path}"
    return f"the deletion vector at offset {_offset(descriptor)} of {path}"


def _path_in_messages(descriptor: DeletionVectorDescriptor) -> str:
    """Return the file's path if the descriptor has one, else the descriptor's text, shortened."""
    text = descriptor.path_or_inline_dv
    if descriptor.storage_type == RELATIVE_PATH:
        try:
            return get_relative_path(descriptor)
        except DeletionVectorError:
            return repr(text)
    if descriptor.storage_type == INLINE and len(text) > 40:
        return f"{text[:40]}… ({len(text)} characters)"
    return text
