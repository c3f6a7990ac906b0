"""Write deletion vectors into files of the table, many to a file.

Spec: PROTOCOL.md, "Deletion Vectors", "Deletion Vector File Storage Format", "Derived Fields".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from pyroaring import BitMap64

from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.deletion_vectors.file_format import FIRST_OFFSET, VERSION_BYTE, frame
from airflow_delta.engine.deletion_vectors.read import decode_uuid_path
from airflow_delta.engine.deletion_vectors.roaring import serialize
from airflow_delta.engine.model.dv_descriptor import RELATIVE_PATH, DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

__all__ = ["write_deletion_vectors"]

_TARGET_BYTES = 2 << 20
"""The size at which a file ends, as of Delta Spark. A larger vector has a file of its own."""


def write_deletion_vectors(
    storage: Storage, vectors: Sequence[BitMap64]
) -> tuple[list[DeletionVectorDescriptor], list[str]]:
    """Write deletion vectors into new files in the table's root.

    Args:
        storage: the table's storage.
        vectors: the rows that each vector deletes; none may be empty.

    Returns:
        A descriptor for each vector, in order; and the paths of the files, below the table's root.

    Raises:
        DeletionVectorError: a row index is 2⁶³ or larger.
        StorageError: the store failed.
    """
    descriptors: list[DeletionVectorDescriptor] = []
    paths = []
    serialized = map(serialize, vectors)
    cardinalities = iter(map(len, vectors))
    for packed in _group_by_file(serialized):
        file_id = uuid.uuid4()
        text = z85.encode(file_id.bytes)
        content, path = bytearray(VERSION_BYTE), decode_uuid_path(text)
        for data in packed:
            descriptors.append(
                DeletionVectorDescriptor(
                    RELATIVE_PATH, text, len(content), len(data), next(cardinalities)
                )
            )
            content += frame(data)
        storage.create(path, bytes(content))
        paths.append(path)
    return descriptors, paths


def _group_by_file(vectors: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield the serialised vectors in groups, one for each file."""
    group: list[bytes] = []
    size = FIRST_OFFSET
    for data in vectors:
        if group and size + len(data) > _TARGET_BYTES:
            yield group
            group, size = [], FIRST_OFFSET
        group.append(data)
        size += len(data)
    if group:
        yield group
