from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.checkpoint.layout import (
    DICTIONARY_LEAVES,
    STATISTICS_LEAVES,
    checkpoint_schema,
    file_structs,
    null_structs,
)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("kind", ["protocol", "metaData", "txn", "domainMetadata", "add", "remove"])
def test_a_column_without_actions_can_be_written(kind: str, rows: int) -> None:
    type_ = checkpoint_schema().field(kind).type
    column = null_structs(rows, type_)
    column.validate(full=True)
    assert column.to_pylist() == [None] * rows
    buffer = io.BytesIO()
    pq.write_table(pa.table([column], schema=pa.schema([(kind, type_)])), buffer)
    assert pq.read_table(buffer)[kind].to_pylist() == [None] * rows


def test_columns_without_actions_share_their_memory() -> None:
    schema, rows = checkpoint_schema(), 100_000
    before = pa.total_allocated_bytes()
    columns = [null_structs(rows, field.type) for field in schema]
    assert pa.total_allocated_bytes() - before < rows
    assert all(column.null_count == rows for column in columns)


def test_files_become_rows_chunk_by_chunk_without_copies() -> None:
    type_ = checkpoint_schema().field("remove").type
    files = pa.table({"path": pa.chunked_array([["a", "b"], ["c"]]), "size": [1, 2, 3]})
    structs = file_structs(files, type_)
    assert [(r["path"], r["size"]) for r in structs.to_pylist()] == [("a", 1), ("b", 2), ("c", 3)]
    copied = structs.chunk(0).field("path").buffers()[2].address
    assert copied == files["path"].chunk(0).buffers()[2].address


def test_the_leaves_named_for_encodings_exist() -> None:
    buffer = io.BytesIO()
    pq.write_table(checkpoint_schema().empty_table(), buffer)
    schema = pq.ParquetFile(buffer).schema
    leaves = {schema.column(index).path for index in range(len(schema))}
    assert set(DICTIONARY_LEAVES) <= leaves
    assert set(STATISTICS_LEAVES) <= leaves


def test_columns_that_files_lack_are_null() -> None:
    type_ = checkpoint_schema().field("remove").type
    structs = file_structs(pa.table({"path": ["a", "b"]}), type_)
    assert structs.null_count == 0
    assert [row["path"] for row in structs.to_pylist()] == ["a", "b"]
    assert [row["size"] for row in structs.to_pylist()] == [None, None]


def test_a_required_column_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="size of 'a'"):
        file_structs(
            pa.table(
                {
                    "path": ["a"],
                    "partitionValues": pa.array([[]], pa.map_(pa.string(), pa.string())),
                }
            ),
            checkpoint_schema().field("add").type,
        )


def test_statistics_as_text_can_be_left_out() -> None:
    add = checkpoint_schema(stats=False).field("add").type
    assert add.get_field_index("stats") == -1
