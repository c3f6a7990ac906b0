"""Features that are in data files, which somebody else writes anew."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile, StructField, StructType
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    CorruptLogError,
    InvalidArgumentError,
)
from airflow_delta.engine.features.column_mapping import metadata_without_mapping
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import INTEGER, LONG, STRING, DataType
from tests.rewritten_files import read_rows, rewrite_files


def written(delta: DeltaTable, name: str, columns: Mapping[str, pa.Array]) -> AddFile:
    """Add a data file with columns as they are to be called in it."""
    path = Path(delta.uri, name)
    pq.write_table(pa.table(dict(columns)), path)
    records = len(next(iter(columns.values())))
    stats = json.dumps({"numRecords": records})
    added = AddFile(name, {}, path.stat().st_size, 1, data_change=True, stats=stats)
    transaction = delta.transaction("WRITE")
    transaction.add_file(added)
    transaction.commit()
    return added


def inline_vector(*rows: int) -> DeletionVectorDescriptor:
    """PROTOCOL.md, "Deletion Vector Format": the magic number, and 64-bit portable Roaring."""
    data = struct.pack("<I", 1681511377) + BitMap64(rows).serialize()
    data += b"\0" * (-len(data) % 4)
    return DeletionVectorDescriptor("i", z85.encode(data), None, len(data), len(rows))


def delete(delta: DeltaTable, file: AddFile, vector: DeletionVectorDescriptor) -> None:
    """Delete rows of a file."""
    transaction = delta.transaction("DELETE")
    transaction.remove_file(RemoveFile(file.path, data_change=True))
    transaction.add_file(replace(file, deletion_vector=vector))
    transaction.commit()


def numbers(*values: int, bits: int = 64) -> pa.Array:
    return pa.array(values, {32: pa.int32(), 64: pa.int64()}[bits])


def created(root: Path, properties: Mapping[str, str], type_: DataType = LONG) -> DeltaTable:
    fields = (StructField("id", type_), StructField("part", STRING))
    return DeltaTable.create(root, StructType(fields), properties=properties)


@pytest.fixture
def with_vectors(tmp_path: Path) -> DeltaTable:
    """Three files: of the first some rows are deleted, of the second all, of the third none."""
    delta = created(tmp_path, {"delta.enableDeletionVectors": "true"})
    files = [written(delta, f"{n}.parquet", {"id": numbers(n, n + 1, n + 2)}) for n in (0, 10, 20)]
    delete(delta, files[0], inline_vector(1))
    delete(delta, files[1], inline_vector(0, 1, 2))
    return delta


def test_files_with_deletion_vectors_are_given_to_the_rewriter(with_vectors: DeltaTable) -> None:
    delta = with_vectors
    before = read_rows(delta)
    assert [row["id"] for row in before] == [0, 2, 20, 21, 22]
    version = delta.latest_version()
    result = delta.drop_feature("deletionVectors")
    # No new ones come, and the result says what is to be done.
    assert result.status == "needs rewrite"
    assert not delta.snapshot().properties.deletion_vectors_enabled
    assert delta.latest_version() == result.version == version + 1
    sizes = sum(Path(delta.uri, f"{n}.parquet").stat().st_size for n in (0, 10))
    assert result.rewrite == Rewrite("deletionVectors", version + 1, 2, sizes)
    assert json.loads(json.dumps(result.rewrite.to_dict()))["num_files"] == 2
    assert "have Spark rewrite them" in result.reason
    # As long as it isn't done, nothing more happens.
    assert delta.drop_feature("deletionVectors").num_commits == 0
    done = delta.drop_feature("deletionVectors", rewriter=rewrite_files)
    assert (done.status, done.rewrite) == ("dropped", None)
    assert read_rows(delta) == before
    assert delta.snapshot().files()["deletionVector"].null_count == 2
    for number in range(version + 1):
        assert "deletionVectors" in supported_features(delta.snapshot(number).protocol)
    assert read_rows(delta, version) == before


def test_a_dry_run_counts_the_files_to_rewrite(with_vectors: DeltaTable) -> None:
    version = with_vectors.latest_version()
    result = with_vectors.drop_feature("deletionVectors", rewriter=_never, dry_run=True)
    assert result.status == "planned"
    assert result.rewrite is not None
    assert result.rewrite.num_files == 2
    assert result.plan is not None
    assert [step.split()[0] for step in result.plan.steps] == [
        "remove",
        "have",
        "make",
        "take",
        "write",
    ]
    assert with_vectors.latest_version() == version


def _never(uri: str, rewrite: Rewrite) -> None:
    raise AssertionError(f"{uri}: {rewrite}")


def test_a_rewriter_that_does_nothing_is_called_three_times(with_vectors: DeltaTable) -> None:
    calls: list[Rewrite] = []
    with pytest.raises(ConstraintViolationError, match="rewritten 3 times without deletionVectors"):
        with_vectors.drop_feature(
            "deletionVectors", rewriter=lambda _, rewrite: calls.append(rewrite)
        )
    assert len(calls) == 3
    assert with_vectors.drop_feature("deletionVectors", rewriter=rewrite_files).status == "dropped"


def test_files_of_deletion_vectors_are_kept_by_any_vacuum(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.enableDeletionVectors": "true"})
    file = written(delta, "a.parquet", {"id": numbers(0, 1, 2)})
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    (tmp_path / "ab").mkdir()
    data = struct.pack("<I", 1681511377) + BitMap64([1]).serialize()
    content = bytes([1]) + struct.pack(">I", len(data)) + data
    (tmp_path / "ab" / name).write_bytes(content + struct.pack(">I", zlib.crc32(data)))
    # The id is that of the example in PROTOCOL.md, "Derived Fields" of deletion vectors.
    vector = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 1, len(data), 1)
    delete(delta, file, vector)
    assert [row["id"] for row in read_rows(delta)] == [0, 2]
    delta.drop_feature("deletionVectors", rewriter=rewrite_files)
    (kept,) = (info for info in delta.history() if info.operation == "Deletion Vector Tombstones")
    removed = delta.snapshot(kept.version).tombstones().to_pylist()
    (tombstone,) = (row for row in removed if row["path"] == f"ab/{name}")
    assert kept.is_blind_append is False
    assert (tombstone["dataChange"], tombstone["deletionVector"]) == (False, None)
    assert tombstone["deletionTimestamp"] == pytest.approx(kept.timestamp_ms, abs=5_000)
    # They are no files of the table, and no other checkpoint or checksum counts them.
    snapshot = delta.snapshot()
    assert snapshot.num_files == 1
    assert snapshot.verify().differences == ()
    plan = delta.vacuum(retention_hours=0, enforce_retention=False, dry_run=True).plan
    assert {path for path in plan.files["path"].to_pylist() if "vector" in path} <= {f"ab/{name}"}
    assert not delta.vacuum(dry_run=True).plan.files.num_rows


def test_column_mapping_is_dropped_with_all_files(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.columnMapping.mode": "name"})
    names = [str(f.metadata["delta.columnMapping.physicalName"]) for f in delta.snapshot().schema]
    written(
        delta, "a.parquet", dict(zip(names, (numbers(1, 2), pa.array(["a", "b"])), strict=True))
    )
    delta.alter.rename_column("part", "other")
    written(delta, "b.parquet", {names[0]: numbers(3)})
    before = read_rows(delta)
    assert before[0] == {"id": 1, "other": "a"}
    result = delta.drop_feature("columnMapping")
    assert result.rewrite is not None
    assert (result.status, result.rewrite.num_files) == ("needs rewrite", 2)
    assert delta.drop_feature("columnMapping", rewriter=rewrite_files).status == "dropped"
    assert read_rows(delta) == before
    snapshot = delta.snapshot()
    for path in snapshot.files()["path"].to_pylist():
        assert pq.read_schema(tmp_path / path).names == ["id", "other"]
    assert read_rows(delta, 2) == [{"id": 1, "other": "a"}, {"id": 2, "other": "b"}]


def test_column_mapping_is_turned_off_with_all_files_only(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.columnMapping.mode": "name"})
    files = [written(delta, name, {"x": numbers(1)}) for name in ("a.parquet", "b.parquet")]
    transaction = delta.transaction("REMOVE COLUMN MAPPING")
    transaction.set_metadata(metadata_without_mapping(delta.snapshot().metadata, table=delta.uri))
    transaction.remove_file(RemoveFile(files[0].path, data_change=True))
    with pytest.raises(
        ConstraintViolationError, match=r"1 files are otherwise, such as 'b\.parquet'"
    ):
        transaction.commit()
    with pytest.raises(InvalidArgumentError, match=r"with DeltaTable\.drop_feature"):
        delta.alter.set_properties({"delta.columnMapping.mode": "none"})


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_files_with_narrower_types_are_found_by_their_footers(tmp_path: Path, feature: str) -> None:
    properties = {f"delta.feature.{feature}": "supported", "delta.enableTypeWidening": "true"}
    delta = created(tmp_path, properties, INTEGER)
    written(delta, "a.parquet", {"id": numbers(1, bits=32), "part": pa.array(["a"])})
    written(delta, "b.parquet", {"part": pa.array(["b"])})
    delta.alter.change_type("id", LONG)
    written(delta, "c.parquet", {"id": numbers(1 << 40), "part": pa.array(["c"])})
    before = read_rows(delta)
    result = delta.drop_feature(feature)
    assert result.rewrite is not None
    assert (result.rewrite.feature, result.rewrite.num_files) == ("typeWidening", 1)
    assert delta.drop_feature(feature, rewriter=rewrite_files).status == "dropped"
    assert read_rows(delta) == before
    assert all(not field.metadata for field in delta.snapshot().schema)
    assert {"b.parquet", "c.parquet"} < {*delta.snapshot().files()["path"].to_pylist()}


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.enableTypeWidening": "true"}, INTEGER)
    written(delta, "a.parquet", {"id": numbers(1, bits=32)})
    delta.alter.change_type("id", LONG)
    Path(tmp_path, "a.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(CorruptLogError, match=r"the data file a\.parquet can't be read as Parquet"):
        delta.drop_feature("typeWidening")


def test_restored_files_share_no_path_with_removed_ones_afterwards(
    with_vectors: DeltaTable,
) -> None:
    """A reader without deletion vectors identifies files by their paths alone."""
    delta = with_vectors
    delta.restore(3)
    before = read_rows(delta)
    assert len(before) == 9
    result = delta.drop_feature("deletionVectors")
    assert result.rewrite is not None
    assert (result.status, result.rewrite.num_files) == ("needs rewrite", 2)
    result = delta.drop_feature("deletionVectors", rewriter=rewrite_files)
    assert result.status == "dropped"
    assert read_rows(delta) == before
    checkpoint = Path(delta.uri, "_delta_log", f"{result.version:020}.checkpoint.parquet")
    rows = pq.ParquetFile(checkpoint).read(columns=["add", "remove"]).to_pylist()
    live, removed = (
        {row[kind]["path"] for row in rows if row[kind] is not None} for kind in ("add", "remove")
    )
    assert len(live) == 3
    assert {"0.parquet", "10.parquet"} <= removed
    assert not live & removed
