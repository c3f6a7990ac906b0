"""Data files written anew: the same rows with the same ids, and no trace of the feature in the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import (
    CommitConflictError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.features.column_mapping import field_id
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_snapshot, write
from airflow_delta.spark.rewrite import rewrite as rewriting
from airflow_delta.spark.rewrite.files import FileRewriter
from airflow_delta.spark.rewrite.rewrite import RewriteResult, rewrite_data, rewrite_report
from airflow_delta.spark.writer.log_actions import live_files, removal
from tests.engine.changes.logs import inline_vector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.delta_spark.peer import DeltaSpark

pytestmark = pytest.mark.usefixtures("compiled")

# One table with all of it, for the features meet in its files.
COLUMNS = (
    "`a b` STRUCT<x: SMALLINT, y: STRING>, l ARRAY<STRUCT<n: INT>>, day DATE, id INT, p STRING"
)
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableTypeWidening": "true",
    "delta.feature.timestampNtz": "supported",
    "delta.columnMapping.mode": "name",
    "delta.dataSkippingStatsColumns": "id, `a b`.x",
}
ROWS = """named_struct('x', id, 'y', repeat('é', id)), array(named_struct('n', id), null),
    date'2024-01-01', id, elt(1 + id % 3, null, 'a%20=b/c', 'é')"""
STEPS = [
    f"INSERT INTO T! SELECT /*+ REPARTITION(1) */ {ROWS} FROM range(20)",
    "DELETE FROM T! WHERE id IN (1, 4, 6)",
    "ALTER TABLE T! CHANGE COLUMN `a b`.x TYPE INT",
    "ALTER TABLE T! CHANGE COLUMN l.element.n TYPE LONG",
    "ALTER TABLE T! ALTER COLUMN day TYPE TIMESTAMP_NTZ",
    f"INSERT INTO T! SELECT /*+ REPARTITION(1) */ {ROWS} FROM range(20, 40)",
    "UPDATE T! SET day = timestamp_ntz'2024-01-01 12:00:00.123456' WHERE id IN (2, 30)",
]
READ = "SELECT *, _metadata.row_id, _metadata.row_commit_version FROM T! ORDER BY id"


@pytest.mark.deep
def test_features_that_need_it_are_dropped(
    spark: SparkSession, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    root = tmp_path / "t"

    def sql(statement: str) -> list[dict[str, Any]]:
        return delta_spark.sql(statement.replace("T!", f"delta.`{root}`"))

    told = ", ".join(f"'{name}'='{value}'" for name, value in PROPERTIES.items())
    sql(f"CREATE TABLE T! ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({told})")
    for step in STEPS:
        sql(step)
    with pytest.raises(InvalidTableError, match="a b"):
        rewrite_data(spark, str(root), "columnMapping")
    sql("ALTER TABLE T! RENAME COLUMN `a b` TO ab")
    before = sql(READ)
    assert len(before) == 37

    done = []
    for feature in ("typeWidening", "deletionVectors", "columnMapping"):
        result = DeltaTable(str(root)).drop_feature(
            feature,
            rewriter=lambda uri, told: done.append(rewrite_data(spark, uri, told.feature)),
        )
        assert result.status == "dropped"

    assert sql(READ) == before
    assert [result.num_commits for result in done] == [1, 1, 1]
    files = DeltaTable(str(root)).snapshot().files()
    for path in files["path"].to_pylist():
        _check_file(pq.read_schema(root / decode_path(path)))
    _check_statistics(files, before)
    values = [dict(pairs) for pairs in files["partitionValues"].to_pylist()]
    assert {value["p"] for value in values} == {None, "a%20=b/c", "é"}
    peer = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["id", "p"])
    assert sorted(peer["id"].to_pylist()) == [row["id"] for row in before]


def _check_file(schema: pa.Schema) -> None:
    hidden = [name for name in schema.names if name.startswith("_row-")]
    assert len(hidden) == 2
    assert [name for name in schema.names if name not in hidden] == ["ab", "l", "day", "id"]
    assert schema.field("ab").type == pa.struct([("x", pa.int32()), ("y", pa.string())])
    assert schema.field("l").type.value_type == pa.struct([("n", pa.int64())])
    assert schema.field("day").type == pa.timestamp("us")


def _check_statistics(files: pa.Table, rows: list[dict[str, Any]]) -> None:
    told = [json.loads(text) for text in files["stats"].to_pylist()]
    assert sum(stats["numRecords"] for stats in told) == len(rows)
    assert all(stats["minValues"].keys() == {"id", "ab"} for stats in told)
    assert min(stats["minValues"]["ab"]["x"] for stats in told) == 0
    assert max(stats["maxValues"]["id"] for stats in told) == 39


# Tables of two files, of which others want something meanwhile.


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that each test has a copy of."""
    root = tmp_path_factory.mktemp("written") / "t"
    for ids in ([1, 2], [3, 4]):
        rows = spark.createDataFrame(
            [(n, None if n == 2 else f"{n}") for n in ids], "id INT, t STRING"
        )
        write(rows.coalesce(1), str(root), mode="append")
    return root


@pytest.fixture
def table(written: Path, tmp_path: Path) -> DeltaTable:
    """Rows 1 and 2 in one file, 3 and 4 in another."""
    return DeltaTable(str(shutil.copytree(written, tmp_path / "t")))


def ids(spark: SparkSession, table: DeltaTable) -> list[int]:
    return sorted(row[0] for row in read_snapshot(spark, table.uri, columns=["id"]).collect())


def stored(table: DeltaTable) -> set[str]:
    return {
        path for info in table.storage.walk("") if not (path := info.path).startswith("_delta_log/")
    }


def delete(table: DeltaTable, place: int, rows: list[int]) -> AddFile:
    """Delete rows of a file by a deletion vector."""
    transaction = table.transaction("DELETE")
    file = sorted(live_files(transaction.base.files()), key=lambda file: file.stats or "")[place]
    vector = inline_vector(rows)
    assert vector
    descriptor = DeletionVectorDescriptor.from_json(vector, "test")
    masked = replace(file, deletion_vector=descriptor, data_change=True)
    transaction.remove_file(removal(file, data_change=True))
    transaction.add_file(masked)
    transaction.commit()
    return masked


def widen(table: DeltaTable) -> None:
    table.alter.set_properties({"delta.enableTypeWidening": "true"})
    table.alter.change_type("id", LONG)


def meanwhile(monkeypatch: pytest.MonkeyPatch, *commits: Callable[[], object]) -> None:
    """Make a commit each time that files have been written anew, before they are committed."""
    pending, rewrite = list(commits), FileRewriter.rewrite

    def _rewrite(self: FileRewriter, adds: pa.Table) -> Any:
        written = rewrite(self, adds)
        if pending:
            pending.pop(0)()
        return written

    monkeypatch.setattr(FileRewriter, "rewrite", _rewrite)


def test_a_file_that_is_removed_meanwhile_stays_removed(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(table)
    others = DeltaTable(table.uri)
    first, second = others.snapshot().files()["path"].to_pylist()

    def remove() -> None:
        transaction = others.transaction("DELETE")
        file = next(f for f in live_files(transaction.base.files()) if f.path == first)
        transaction.remove_file(removal(file, data_change=True))
        transaction.commit()

    left = sorted({1, 2, 3, 4} - set(_ids_of(table, first)))
    meanwhile(monkeypatch, remove)
    result = rewrite_data(spark, table.uri, "typeWidening")
    assert (result.num_commits, result.num_removed, result.num_added) == (1, 1, 1)
    assert ids(spark, table) == left
    live = [decode_path(path) for path in table.snapshot().files()["path"].to_pylist()]
    # What was written of the removed file is gone again.
    left_behind = {path for path in stored(table) if not path.endswith(".crc")}
    assert left_behind == {first, second, *live}
    assert rewrite_data(spark, table.uri, "typeWidening") == RewriteResult()


def _ids_of(table: DeltaTable, path: str) -> list[int]:
    return list(pq.read_table(Path(table.uri, decode_path(path)))["id"].to_pylist())


def test_a_file_that_is_added_meanwhile_is_unmapped_too(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.alter.rename_column("id", "number")
    table.alter.cluster_by(["number"])
    pq.write_table(
        pa.table({"id": pa.array([5], pa.int32()), "t": ["5"]}), Path(table.uri, "5.parquet")
    )
    others = DeltaTable(table.uri)

    def append() -> None:
        stats = '{"numRecords":1,"minValues":{"id":5},"maxValues":{"id":5},"nullCount":{"id":0}}'
        transaction = others.transaction("WRITE")
        transaction.add_file(AddFile("5.parquet", {}, 1000, 1, data_change=True, stats=stats))
        transaction.commit()

    meanwhile(monkeypatch, append)
    written: list[int] = []
    rewrite = FileRewriter.rewrite
    monkeypatch.setattr(
        FileRewriter,
        "rewrite",
        lambda self, adds: written.append(adds.num_rows) or rewrite(self, adds),
    )
    result = rewrite_data(spark, table.uri, "columnMapping")
    # The second round takes what the first has written.
    assert written == [2, 1]
    assert rewrite_report(result)["files_removed"] == 3
    rows = read_snapshot(spark, table.uri).collect()
    assert sorted(tuple(row) for row in rows) == [
        (1, "1"), (2, None), (3, "3"), (4, "4"), (5, "5")
    ]  # fmt: skip
    snapshot = table.snapshot()
    assert not [name for name in snapshot.properties.raw if "columnMapping" in name]
    assert '["number"]' in snapshot.domains["delta.clustering"].configuration
    for path in snapshot.files()["path"].to_pylist():
        assert pq.read_schema(Path(table.uri, decode_path(path))).names == ["number", "t"]
    (info,) = table.history(1)
    assert info.operation == "REMOVE COLUMN MAPPING"


def test_without_an_end_to_conflicts_it_gives_up(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(table)
    before = stored(table)
    monkeypatch.setattr(rewriting, "_MOST_CONFLICTS", 2)

    def refuse(self: OptimisticTransaction, **_: Any) -> None:
        raise CommitConflictError("somebody was faster")

    monkeypatch.setattr(OptimisticTransaction, "commit", refuse)
    with pytest.raises(CommitConflictError, match="faster"):
        rewrite_data(spark, table.uri, "typeWidening")
    assert stored(table) == before


def test_vectors_go_with_the_rows_that_they_delete(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    delete(table, 0, [0])
    whole = delete(table, 1, [0, 1])
    monkeypatch.setattr(rewriting, "_BATCH_BYTES", 1)
    with monkeypatch.context() as broken:

        def die(self: OptimisticTransaction, **_: Any) -> None:
            raise KeyboardInterrupt

        broken.setattr(OptimisticTransaction, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            rewrite_data(spark, table.uri, "deletionVectors")
    # Whatever a broken run has left is no part of the table.
    left = ids(spark, table)
    assert len(left) == 1
    result = rewrite_data(spark, table.uri, "deletionVectors")
    assert (result.num_commits, result.num_removed, result.num_added) == (2, 2, 1)
    assert ids(spark, table) == left
    files = table.snapshot().files()
    assert files["deletionVector"].null_count == files.num_rows == 1
    assert whole.path not in files["path"].to_pylist()
    assert [info.operation for info in table.history(2)] == ["REORG", "REORG"]


def test_restored_files_give_way_to_others(spark: SparkSession, table: DeltaTable) -> None:
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    version = table.latest_version()
    restored = delete(table, 0, [0])
    table.restore(version)
    result = rewrite_data(spark, table.uri, "deletionVectors")
    assert (result.num_commits, result.num_removed, result.num_added) == (1, 1, 1)
    assert restored.path not in table.snapshot().files()["path"].to_pylist()
    assert ids(spark, table) == [1, 2, 3, 4]
    assert rewrite_data(spark, table.uri, "deletionVectors") == RewriteResult()


def test_files_of_mapped_columns_have_their_ids(spark: SparkSession, table: DeltaTable) -> None:
    table.alter.add_columns([StructField("s", StructType((StructField("x", LONG),)))])
    table.alter.set_properties(
        {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    )
    delete(table, 0, [0])
    rewrite_data(spark, table.uri, "deletionVectors")
    paths = table.snapshot().files()["path"].to_pylist()
    (path,) = (path for path in paths if path.startswith("rewrite-"))
    schema = pq.read_schema(Path(table.uri, decode_path(path)))
    fields = {field.name: field for field in table.snapshot().schema}
    wanted = {name: str(field_id(field)).encode() for name, field in fields.items()}
    assert {field.name: field.metadata[b"PARQUET:field_id"] for field in schema} == wanted
    inner = fields["s"].data_type
    assert isinstance(inner, StructType)
    nested = schema.field("s").type.field("x").metadata[b"PARQUET:field_id"]
    assert nested == str(field_id(inner.fields[0])).encode()


def test_statistics_that_lie_stop_it(spark: SparkSession, table: DeltaTable) -> None:
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    transaction = table.transaction("DELETE")
    file = next(live_files(transaction.base.files()))
    transaction.remove_file(removal(file, data_change=True))
    descriptor = DeletionVectorDescriptor.from_json(inline_vector([0]) or {}, "test")
    transaction.add_file(replace(file, deletion_vector=descriptor, stats='{"numRecords":9}'))
    transaction.commit()
    before = stored(table)
    with pytest.raises(InvalidTableError, match=r"has 1 rows .* it has 8"):
        rewrite_data(spark, table.uri, "deletionVectors")
    assert stored(table) == before


def test_what_it_is_not_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="deletionVectors, columnMapping, typeWidening"):
        rewrite_data(spark, str(tmp_path), "rowTracking")  # type: ignore[arg-type]
