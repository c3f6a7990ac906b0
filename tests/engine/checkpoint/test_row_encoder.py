"""Row groups of actions that are put together from what was encoded before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.json.exact import FILE_KINDS
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.row_encoder import EncodedFiles, RowEncoder

SCHEMA = checkpoint_schema()


def structs(kind: str, first: int, count: int) -> pa.ChunkedArray:
    values = [
        {
            "path": f"f{number}",
            "partitionValues": {"p": str(number % 3)},
            "size": number,
            "modificationTime": 1,
            "dataChange": False,
        }
        for number in range(first, first + count)
    ]
    return pa.chunked_array([pa.array(values, SCHEMA.field(kind).type)])


def told(files: EncodedFiles) -> tuple[object, ...]:
    group = files.group
    return bytes(files.data), group.num_rows, group.length, group.size, files.file.traits


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_a_row_group_is_the_same_whatever_was_encoded_before(kind: str) -> None:
    encoder = RowEncoder(SCHEMA)
    for first, count in ((0, 50), (50, 50), (100, 7), (107, 50), (157, 50)):
        for other in FILE_KINDS:
            encoder.files(other, structs(other, 0, count), adds_size=0)
        found = encoder.files(kind, structs(kind, first, count), adds_size=9)
        fresh = RowEncoder(SCHEMA).files(kind, structs(kind, first, count), adds_size=9)
        assert told(found) == told(fresh)
        assert (found.kind, found.adds_size) == (kind, 9)
