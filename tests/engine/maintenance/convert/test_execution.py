"""A directory of Parquet files becomes a table, once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DATE, INTEGER, STRING, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from tests.engine.maintenance.convert.parquet_folders import (
    actions_of,
    adds_of,
    fingerprint,
    write_parquet,
)

DAYS = StructType((StructField("day", DATE), StructField("region", STRING)))


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A directory as Hive and Spark write them, with names that are escaped, and one that is null."""
    root = tmp_path / "days"
    write_parquet(root / "day=2026-01-31" / "region=a%20b%2Fc" / "0.parquet", {"id": [1, 2]})
    write_parquet(root / "day=2026-02-01" / "region=é" / "1.parquet", {"id": [3], "note": ["x"]})
    hive_null = "__HIVE_DEFAULT_PARTITION__"
    write_parquet(root / f"day={hive_null}" / "region=%C3%BC" / "2 %.parquet", {"id": [None, 5]})
    (root / "_SUCCESS").touch()
    (root / ".day.crc").write_bytes(b"crc")
    write_parquet(root / "_temporary" / "0" / "3.parquet", {"id": [9]})
    return root


def rows_of(table: Path) -> list[tuple[Any, ...]]:
    read = DeltaTable(table).snapshot().to_arrow()
    return sorted((tuple(row.values()) for row in read.to_pylist()), key=str)


def test_a_partitioned_directory_becomes_a_table(days: Path) -> None:
    before = fingerprint(days)
    planned = DeltaTable.convert(days, DAYS, dry_run=True)
    assert not (days / "_delta_log").exists()
    done = DeltaTable.convert(days, DAYS)
    assert fingerprint(days) == before, "no data file is touched"
    assert (done.version, done.converted, done.repeated, done.reason) == (0, True, False, None)
    assert done.to_dict() == {**planned.to_dict(), "version": 0, "converted": True}
    size = sum(add["size"] for add in adds_of(days).values())
    assert planned.to_dict() == {
        "version": None,
        "converted": False,
        "repeated": False,
        "files": 3,
        "bytes": size,
        "rows": 5,
        "columns": {"id": "long", "note": "string", "day": "date", "region": "string"},
        "partition_columns": ["day", "region"],
        "reason": None,
    }
    found = {path: add["partitionValues"] for path, add in adds_of(days).items()}
    assert found == {
        "day=2026-01-31/region=a%2520b%252Fc/0.parquet": {"day": "2026-01-31", "region": "a b/c"},
        "day=2026-02-01/region=é/1.parquet": {"day": "2026-02-01", "region": "é"},
        "day=__HIVE_DEFAULT_PARTITION__/region=%25C3%25BC/2%20%25.parquet": {
            "day": None,
            "region": "ü",
        },
    }
    for path, add in adds_of(days).items():
        file = next(file for file in days.rglob(path.rpartition("/")[2][:1] + "*.parquet"))
        assert (add["size"], add["dataChange"]) == (file.stat().st_size, True)
        assert add["modificationTime"] == file.stat().st_mtime_ns // 1_000_000
    assert [row[:2] for row in rows_of(days)] == [
        (1, None),
        (2, None),
        (3, "x"),
        (5, None),
        (None, None),
    ]


def test_the_commit_is_that_of_the_reference(days: Path) -> None:
    DeltaTable.convert(days, DAYS)
    info, protocol, metadata, *_ = actions_of(days)
    assert info["commitInfo"]["operation"] == "CONVERT"
    assert info["commitInfo"]["operationParameters"] == {
        "numFiles": "3",
        "partitionedBy": '["day","region"]',
        "collectStats": "true",
        "sourceFormat": "parquet",
    }
    assert info["commitInfo"]["operationMetrics"] == {"numConvertedFiles": "3"}
    assert protocol == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert metadata["metaData"]["partitionColumns"] == ["day", "region"]


def test_a_table_is_left_as_it_is(days: Path) -> None:
    DeltaTable.convert(days, DAYS, once=("task", 1))
    table = DeltaTable(days)
    table.alter.set_properties({"delta.appendOnly": "true"})
    before = {file.name for file in (days / "_delta_log").iterdir()}
    again = DeltaTable.convert(days, DAYS)
    assert (again.version, again.converted, again.repeated) == (1, False, False)
    assert again.reason == "the directory is a Delta table already"
    other = DeltaTable.convert(days, DAYS, once=("task", 2))
    assert (other.version, other.repeated) == (1, False)
    same = DeltaTable.convert(days, DAYS, once=("task", 1))
    assert (same.version, same.converted, same.repeated) == (0, False, True)
    assert {file.name for file in (days / "_delta_log").iterdir()} == before


def test_of_two_at_once_one_wins(days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_delta.engine.maintenance.convert import execution

    together, plan = threading.Barrier(2, timeout=30), execution.plan_conversion

    def plan_together(*arguments: Any) -> Any:
        planned = plan(*arguments)
        together.wait()
        return planned

    monkeypatch.setattr(execution, "plan_conversion", plan_together)
    outcomes: list[object] = []

    def convert() -> None:
        try:
            outcomes.append(DeltaTable.convert(days, DAYS).version)
        except TableAlreadyExistsError as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=convert) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == sorted(["0", str(TableAlreadyExistsError)])
    assert DeltaTable(days).snapshot().num_files == 3


def test_stale_files_of_a_log_are_found_before_any_file_is_read(days: Path) -> None:
    (days / "_delta_log").mkdir()
    (days / "_delta_log" / f"{5:020}.crc").write_bytes(b"{}")
    with pytest.raises(InvalidTableError, match="files of a former log"):
        DeltaTable.convert(days, {"nothing": "date"})


def test_a_list_of_paths_stands_for_the_listing(days: Path) -> None:
    write_parquet(days / "day=2026-01-31" / "region=a" / "_left.parquet", {"id": [7]})
    files = ["day=2026-01-31/region=a/_left.parquet", "day=2026-02-01/region=é/1.parquet"]
    done = DeltaTable.convert(days, DAYS, files=iter(files))
    assert (done.to_dict()["files"], done.to_dict()["rows"]) == (2, 2)
    assert sorted(row[0] for row in rows_of(days)) == [3, 7]


def test_properties_make_the_table(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [1], "text": ["x" * 40]})
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.dataSkippingStatsColumns": "text",
        "owner": "me",
    }
    DeltaTable.convert(tmp_path, properties=properties)
    snapshot = DeltaTable(tmp_path).snapshot()
    assert {"deletionVectors", "rowTracking"} <= set(snapshot.protocol.writer_features or ())
    assert snapshot.metadata.configuration["owner"] == "me"
    (add,) = adds_of(tmp_path).values()
    assert add["stats"] == {
        "numRecords": 1,
        "minValues": {"text": "x" * 32},
        "maxValues": {"text": "x" * 32 + "\x7f"},
        "nullCount": {"text": 0},
        "tightBounds": True,
    }
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 0)


def test_statistics_can_be_left_out(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [1]})
    DeltaTable.convert(tmp_path, collect_statistics=False)
    (action,) = [action["add"] for action in actions_of(tmp_path) if "add" in action]
    assert "stats" not in action
    parameters = actions_of(tmp_path)[0]["commitInfo"]["operationParameters"]
    assert parameters["collectStats"] == "false"


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"delta.columnMapping.mode": "name"}, "columns by physical names"),
        ({"delta.enableIcebergCompatV2": "true"}, "ids of columns"),
        ({"delta.constraints.c": "id > 0"}, "nobody has checked the rows"),
        ({"delta.enableRowTracking": "true"}, "collect_statistics=True"),
        ({"delta.unheardOf": "1"}, "delta.unheardOf"),
    ],
)
def test_properties_that_files_cannot_follow(
    tmp_path: Path, properties: dict[str, str], problem: str
) -> None:
    (tmp_path / "0.parquet").write_bytes(b"not even read")
    with pytest.raises((InvalidArgumentError, UnsupportedFeatureError), match=problem):
        DeltaTable.convert(tmp_path, properties=properties, collect_statistics=False)
    assert not (tmp_path / "_delta_log").exists()


def test_an_empty_file_is_in_the_table(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0.parquet", pa.table({"id": pa.array([], pa.int32())}))
    write_parquet(tmp_path / "1.parquet", pa.table({"id": pa.array([4], pa.int32())}))
    DeltaTable.convert(tmp_path)
    assert adds_of(tmp_path)["0.parquet"]["stats"]["numRecords"] == 0
    assert rows_of(tmp_path) == [(4,)]


def test_a_partition_column_that_files_hold_keeps_its_place(tmp_path: Path) -> None:
    columns = pa.table({"p": ["7"], "id": [1]})
    write_parquet(tmp_path / "p=07" / "0.parquet", columns)
    DeltaTable.convert(tmp_path, StructType((StructField("p", INTEGER),)))
    assert [field.name for field in DeltaTable(tmp_path).snapshot().schema] == ["p", "id"]
    (add,) = adds_of(tmp_path).values()
    assert (add["partitionValues"], list(add["stats"]["minValues"])) == ({"p": "7"}, ["id"])
    assert rows_of(tmp_path) == [(7, 1)]


def test_files_become_rows_of_columns(days: Path) -> None:
    """More files than a batch, and than there are threads: all arrive, in their order."""
    from airflow_delta.engine.maintenance.convert import footers

    for number in range(12):
        write_parquet(
            days / "day=2026-03-01" / "region=x" / f"{number:02}.parquet", {"id": [number]}
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footers, "_BATCH", 5)
        plan = DeltaTable.convert(days, DAYS, dry_run=True).plan
    assert plan is not None
    assert plan.files.column("path").num_chunks == 3
    paths = plan.files["path"].to_pylist()
    assert (len(paths), paths) == (15, sorted(paths))
    rows = dict(zip(paths, plan.files["stats"].to_pylist(), strict=True))
    assert '"minValues":{"id":11}' in rows["day=2026-03-01/region=x/11.parquet"]
