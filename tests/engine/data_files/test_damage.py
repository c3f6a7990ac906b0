"""What a scan says of data files that aren't as the log describes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import LONG, STRING, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import (
    DataFileError,
    DeletionVectorError,
    MissingFilesError,
    NotRegularFileError,
    OutsidePathError,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor

SCHEMA = StructType((StructField("id", LONG), StructField("text", STRING)))
ROWS = pa.table({"id": range(1000), "text": [f"text {n}" for n in range(1000)]})


def table_of(
    root: Path,
    rows: pa.Table = ROWS,
    *,
    path: str = "a.parquet",
    vector: DeletionVectorDescriptor | None = None,
    told: dict[str, str] | None = None,
) -> DeltaTable:
    """A table with one file."""
    table = DeltaTable.create(str(root), SCHEMA, properties=told)
    pq.write_table(rows, root / "a.parquet", compression="none", write_page_checksum=True)
    transaction = table.transaction("WRITE")
    size = (root / "a.parquet").stat().st_size
    stats = json.dumps({"numRecords": rows.num_rows, "tightBounds": False})
    transaction.add_file(AddFile(path, {}, size, 1, True, stats, deletion_vector=vector))
    transaction.commit()
    return table


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(MissingFilesError, match="of version 1 doesn't exist") as caught:
        table.snapshot().to_arrow()
    assert (caught.value.path, caught.value.version) == ("a.parquet", 1)


def rewritten(path: Path) -> None:
    pq.write_table(ROWS.slice(5), path)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def same_size(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def changed_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"text 500")] ^= 1
    path.write_bytes(data)


def no_footer(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-8] + b"\xff\xff\xff\x7fPAR1")


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (rewritten, r"it has \d+ bytes, and \d+ in the log"),
        (cut_off, r"it has \d+ bytes, and \d+ in the log"),
        (same_size, "it can't be read as Parquet"),
        (changed_page, "CRC checksum verification failed"),
        (no_footer, "it can't be read as Parquet"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], None], finding: str) -> None:
    table = table_of(tmp_path)
    damage(tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match=finding) as caught:
        table.snapshot().to_arrow()
    assert caught.value.path == "a.parquet"
    assert "restore" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        (
            pa.table({"id": ["x"]}),
            "column 'id' can't be read: it has the type string there, and int64",
        ),
        (pa.table({"id": [0.5]}), "it has the type double there, and int64"),
        (pa.table({"id": pa.array([2**63], pa.uint64())}), "has a value that is no int64"),
        (pa.table({"text": pa.array([b"\xff"], pa.binary())}), "has a value that is no string"),
        (pa.table([[1], [2]], names=["ID", "Id"]), "it has more than one column 'id'"),
    ],
)
def test_other_columns_than_those_of_the_table_are_named(
    tmp_path: Path, rows: pa.Table, finding: str
) -> None:
    with pytest.raises(DataFileError, match=finding):
        table_of(tmp_path, rows).snapshot().to_arrow()


def test_the_case_of_a_name_does_not_matter(tmp_path: Path) -> None:
    found = table_of(tmp_path, pa.table({"ID": [7]})).snapshot().to_arrow()
    assert found.to_pylist() == [{"id": 7, "text": None}]


def test_in_mode_id_a_file_without_ids_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path, told={"delta.columnMapping.mode": "id"})
    with pytest.raises(DataFileError, match="its columns have no field ids"):
        table.snapshot().to_arrow()


def test_a_vector_beyond_the_rows_of_the_file_is_refused(tmp_path: Path) -> None:
    # The inline example of PROTOCOL.md: rows 3, 4, 7, 11, 18 and 29.
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = DeletionVectorDescriptor("i", text, None, 40, 6)
    told = {"delta.enableDeletionVectors": "true"}
    found = table_of(tmp_path / "long", vector=vector, told=told).snapshot().to_arrow()
    assert sorted(set(range(1000)) - set(found["id"].to_pylist())) == [3, 4, 7, 11, 18, 29]
    short = table_of(tmp_path / "short", ROWS.slice(0, 29), vector=vector, told=told)
    with pytest.raises(DeletionVectorError, match="names row 29, and the file has 29 rows"):
        short.snapshot().to_arrow()


def test_paths_that_the_table_may_not_read_are_refused(tmp_path: Path) -> None:
    outside = table_of(tmp_path / "t", path="file:///etc/hostname")
    with pytest.raises(OutsidePathError, match="it lies outside of the table"):
        outside.snapshot().to_arrow()
    other = table_of(tmp_path / "u", path=f"file://{tmp_path}/t/a.parquet")
    allowed = DeltaTable(other.uri, allowed_outside=[str(tmp_path / "t")])
    assert allowed.snapshot().to_arrow().num_rows == 1000


def test_a_link_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    (tmp_path / "t" / "a.parquet").rename(tmp_path / "other")
    (tmp_path / "t" / "a.parquet").symlink_to(tmp_path / "other")
    with pytest.raises(NotRegularFileError, match="a link leads from there"):
        table.snapshot().to_arrow()
