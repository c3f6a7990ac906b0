"""Files with types that only Arrow has, such as those that deltalake writes when it rewrites rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_delta.engine import (
    LONG,
    STRING,
    AddFile,
    ArrayType,
    DeltaTable,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.data_files import batch_sizes
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.errors import DataFileError
from airflow_delta.engine.model.schema import DataType
from airflow_delta.engine.parquet.thrift import BINARY, decode, encode
from tests.row_tables import bag

ROWS = pa.table(
    {
        "x": [1, 2, 3, 4],
        "text": ["a", "b", None, "d"],
        "raw": pa.array([b"a", None, b"c", b"d"], pa.binary()),
        "list": [["a"], [], None, ["d", None]],
        "s": [{"t": "a"}, {"t": None}, None, {"t": "d"}],
    }
)


def update(table: deltalake.DeltaTable) -> None:
    table.update({"x": "x + 10"}, predicate="x >= 4")


def merge(table: deltalake.DeltaTable) -> None:
    merger = table.merge(ROWS.slice(3), "s.x = t.x", source_alias="s", target_alias="t")
    merger.when_matched_update({"x": "s.x + 10"}).execute()


def delete(table: deltalake.DeltaTable) -> None:
    table.delete("x = 1")


@pytest.mark.parametrize("change", [update, merge, delete])
def test_files_that_deltalake_has_rewritten_are_filtered(
    tmp_path: Path, change: Callable[[deltalake.DeltaTable], Any]
) -> None:
    deltalake.write_deltalake(tmp_path, ROWS)
    change(deltalake.DeltaTable(tmp_path))
    snapshot = DeltaTable(tmp_path).snapshot()
    (path,) = snapshot.files()["path"].to_pylist()
    # The test is about these types, which deltalake chooses.
    assert pa.string_view() in pq.read_schema(tmp_path / path).types
    rows = deltalake.DeltaTable(tmp_path).to_pyarrow_table().select(ROWS.column_names).to_pylist()
    assert bag(snapshot.to_arrow().to_pylist()) == bag(rows)
    for text, kept in (
        ("x >= 3", lambda row: row["x"] >= 3),
        ("text = 'd'", lambda row: row["text"] == "d"),
        ("text IS NULL", lambda row: row["text"] is None),
    ):
        expected = [row for row in rows if kept(row)]
        assert bag(snapshot.to_arrow(predicate=text).to_pylist()) == bag(expected), text


VIEW = pa.string_view()


@pytest.mark.parametrize(
    ("kind", "type_", "values"),
    [
        (STRING, VIEW, ["a", None, "c", "d"]),
        (ArrayType(STRING), pa.list_(VIEW), [["a"], None, [], ["d", None]]),
        (ArrayType(STRING), pa.list_view(pa.string()), [["a"], None, [], ["d", None]]),
        (ArrayType(LONG), pa.large_list_view(pa.int64()), [[1], None, [], [4, None]]),
        (
            StructType((StructField("l", ArrayType(STRING)),)),
            pa.struct([("l", pa.list_(VIEW))]),
            [{"l": ["a"]}, None, {"l": None}, {"l": ["d"]}],
        ),
        (MapType(STRING, STRING), pa.map_(VIEW, VIEW), [[("a", "b")], None, [], [("c", None)]]),
    ],
    ids=str,
)
def test_views_are_read_at_any_depth(
    tmp_path: Path, kind: DataType, type_: pa.DataType, values: list[Any]
) -> None:
    schema = StructType((StructField("x", LONG), StructField("v", kind)))
    properties = {"delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(str(tmp_path), schema, properties=properties)
    rows = pa.table({"x": [1, 2, 3, 4], "v": pa.array(values, type_)})
    pq.write_table(rows, tmp_path / "a.parquet")
    (vector,) = write_deletion_vectors(table.storage, [BitMap64([2])])[0]
    stats = json.dumps({"numRecords": 4, "tightBounds": False})
    size = (tmp_path / "a.parquet").stat().st_size
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("a.parquet", {}, size, 1, True, stats, deletion_vector=vector))
    transaction.commit()
    snapshot = table.snapshot()
    assert snapshot.to_arrow()["v"].to_pylist() == [*values[:2], values[3]]
    assert snapshot.to_arrow(predicate="x >= 2")["v"].to_pylist() == [values[1], values[3]]
    assert snapshot.to_arrow(predicate="v IS NULL")["x"].to_pylist() == [2]


def add_file(table: DeltaTable, root: Path) -> None:
    transaction = table.transaction("WRITE")
    size = (root / "a.parquet").stat().st_size
    transaction.add_file(AddFile("a.parquet", {}, size, 1, data_change=True))
    transaction.commit()


LIKE_THE_KEY = "\x0cARROW:schema"


@pytest.mark.parametrize("type_", [VIEW, pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_values_like_the_key_of_arrows_schema_are_kept(tmp_path: Path, type_: pa.DataType) -> None:
    values = [LIKE_THE_KEY, "a", "b" + LIKE_THE_KEY]
    table = DeltaTable.create(str(tmp_path), StructType((StructField("v", STRING),)))
    pq.write_table(pa.table({"v": pa.array(values).cast(type_)}), tmp_path / "a.parquet")
    add_file(table, tmp_path)
    snapshot = table.snapshot()
    assert snapshot.to_arrow()["v"].to_pylist() == values
    assert snapshot.to_arrow(predicate=f"v = '{LIKE_THE_KEY}'").num_rows == 1


def test_a_footer_that_hides_the_key_of_arrows_schema_is_an_error(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), StructType((StructField("v", STRING),)))
    pq.write_table(pa.table({"v": pa.array(["a"], VIEW)}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[start:-8])
    assert 6 in footer.fields  # The name of the writer, behind the metadata.
    footer.fields[6] = (BINARY, LIKE_THE_KEY.encode())
    changed = encode(footer)
    end = len(changed).to_bytes(4, "little") + data[-4:]
    (tmp_path / "a.parquet").write_bytes(data[:start] + changed + end)
    add_file(table, tmp_path)
    with pytest.raises(DataFileError, match="Arrow's schema"):
        table.snapshot().to_arrow()


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (STRING, pa.large_string()),
        (STRING, pa.large_binary()),
        (ArrayType(STRING), pa.list_(pa.large_string())),
    ],
    ids=str,
)
def test_large_texts_that_no_array_of_texts_can_hold_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: DataType, type_: pa.DataType
) -> None:
    monkeypatch.setattr(batch_sizes, "_MOST_BYTES", 5000)
    schema = StructType((StructField("x", LONG), StructField("v", kind)))
    table = DeltaTable.create(str(tmp_path), schema)
    texts = [None if x % 7 == 0 else "é" * (3000 if x == 50 else x) for x in range(300)]
    values = texts if kind == STRING else [[text, "b"] for text in texts]
    rows = pa.table({"x": range(300), "v": pa.array(values).cast(type_)})
    pq.write_table(rows, tmp_path / "a.parquet")
    add_file(table, tmp_path)
    expected = pa.table({"x": range(300), "v": values}).to_pylist()
    for predicate, kept in (("x >= 0", expected), ("x >= 40 and x <= 290", expected[40:291])):
        batches = [*table.snapshot().scan(predicate=predicate)]
        assert [row for batch in batches for row in batch.to_pylist()] == kept
        assert all(batch.num_rows == 1 or batch.nbytes <= 5000 for batch in batches)
        assert len(batches) < len(kept) / 2
