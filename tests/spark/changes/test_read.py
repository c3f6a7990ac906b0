"""`read_changes` against the golden change feeds, the peer's feed of every range, and made-up logs."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine.errors import (
    ChangesNotAvailableError,
    InvalidArgumentError,
    InvalidTableError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from airflow_delta.spark import read_changes
from tests.conftest import GOLDEN
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

GoldenCase = Callable[[str], Path]


def golden_feeds() -> list[dict[str, Any]]:
    """The change feeds of the corpus; empty where the corpus isn't there."""
    manifest = GOLDEN / "manifest.json"
    if not manifest.is_file():
        return []
    feeds: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["cdf"]
    return feeds


@pytest.mark.parametrize(
    "feed",
    golden_feeds(),
    ids=lambda feed: f"{feed['table']} {feed['start_version']}-{feed['end_version']}",
)
def test_golden_feed(spark: SparkSession, golden_case: GoldenCase, feed: dict[str, Any]) -> None:
    table = str(golden_case(feed["table"]))
    frame = read_changes(spark, table, feed["start_version"], feed["end_version"])
    # Not their order: the corpus has it from the files.
    assert {*frame.columns} == {*feed["columns"], "_commit_timestamp"}
    rows = rows_of(frame)
    times = {str(row["_commit_version"]): row.pop("_commit_timestamp") for row in rows}
    wanted = {
        version: dt.datetime.fromisoformat(f"{time}+00:00")
        for version, time in feed.get("commit_timestamps", {}).items()
    }
    assert {version: times[version] for version in wanted if version in times} == wanted
    # The corpus has dates as texts.
    assert bag(json.loads(json.dumps(rows, default=str))) == bag(feed["expected_changes"])


FEED = {"delta.enableChangeDataFeed": "true"}


def feed_table(path: Path, **columns: list[Any]) -> Path:
    """A table of deltalake's with a change feed: version 0 has the rows."""
    write_deltalake(str(path), pa.table(columns), configuration=FEED)
    return path


def rewrite_commit(table: Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit."""
    file = table / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        change(action)
    file.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def told(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = [tuple(row[column] for column in columns) for row in rows_of(frame)]
    return sorted(rows, key=repr)


def test_a_file_tells_its_insert_and_its_delete(spark: SparkSession, tmp_path: Path) -> None:
    table = feed_table(tmp_path / "t", id=[1, 2])
    write_deltalake(str(table), pa.table({"id": [3]}), mode="overwrite")
    frame = read_changes(spark, str(table), 0)
    assert told(frame, "id", "_change_type", "_commit_version") == [
        (1, "delete", 1),
        (1, "insert", 0),
        (2, "delete", 1),
        (2, "insert", 0),
        (3, "insert", 1),
    ]
    assert [field.simpleString() for field in frame.schema] == [
        "id:bigint",
        "_change_type:string",
        "_commit_version:bigint",
        "_commit_timestamp:timestamp",
    ]


def test_a_range_by_time(spark: SparkSession, tmp_path: Path) -> None:
    table = feed_table(tmp_path / "t", id=[1])
    write_deltalake(str(table), pa.table({"id": [2]}), mode="append")
    log = table / "_delta_log"
    for version, modified in enumerate((1_750_000_000, 1_750_000_060)):
        os.utime(log / f"{version:020}.json", (modified, modified))
    middle = dt.datetime.fromtimestamp(1_750_000_030, dt.timezone.utc)
    after = read_changes(spark, str(table), middle)
    assert told(after, "id", "_commit_timestamp") == [
        (2, dt.datetime.fromtimestamp(1_750_000_060, dt.timezone.utc))
    ]
    assert told(read_changes(spark, str(table), 0, middle.isoformat()), "id") == [(1,)]


def test_versions_that_changed_nothing_have_no_rows_but_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = feed_table(tmp_path / "t", id=[1])
    write_deltalake(str(table), pa.table({"id": [2]}), mode="append")
    Peer(str(table)).optimize.compact()
    frame = read_changes(spark, str(table), 2)
    assert frame.count() == 0
    assert frame.schema == read_changes(spark, str(table), 0).schema


def test_columns_are_chosen_and_those_of_the_change_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(feed_table(tmp_path / "t", a=[1], b=[2], c=[3]))
    names = read_changes(spark, table, 0, columns=["c", "a"]).columns
    assert names == ["c", "a", "_change_type", "_commit_version", "_commit_timestamp"]
    with pytest.raises(
        InvalidArgumentError, match=r"unknown columns \['d'\]: the table has a, b, c"
    ):
        read_changes(spark, table, 0, columns=["d"])
    with pytest.raises(InvalidArgumentError, match="expected a list of names"):
        read_changes(spark, table, 0, columns="a")


def test_columns_that_are_called_as_ours_are_inside(spark: SparkSession, tmp_path: Path) -> None:
    ours = ["data", "number", "file", "entry", "change", "version", "committed", "selects"]
    table = feed_table(tmp_path / "t", **{name: [name] for name in ours})
    Peer(str(table)).delete()
    rows = rows_of(read_changes(spark, str(table), 0).select(*ours))
    assert rows == [{name: name for name in ours}] * 2


def test_a_column_that_is_called_as_one_of_a_change_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = feed_table(tmp_path / "t", id=[1])
    rewrite_commit(tmp_path / "t", 0, rename_id)
    with pytest.raises(InvalidTableError, match=r"has the columns \['_Change_Type'\]"):
        read_changes(spark, str(table), 0)


def rename_id(action: dict[str, Any]) -> None:
    if "metaData" in action:
        text = action["metaData"]["schemaString"]
        action["metaData"]["schemaString"] = text.replace('"id"', '"_Change_Type"')


def test_files_that_are_not_parquet_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = feed_table(tmp_path / "t", id=[1])

    def as_orc(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["format"] = {"provider": "orc", "options": {}}

    rewrite_commit(table, 0, as_orc)
    with pytest.raises(UnsupportedFeatureError, match="in the format 'orc'"):
        read_changes(spark, str(table), 0)


def test_the_store_is_asked_for_a_size_that_a_remove_does_not_tell(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = feed_table(tmp_path / "t", id=[1, 2])
    write_deltalake(str(table), pa.table({"id": [3]}), mode="overwrite")
    rewrite_commit(table, 1, lambda action: action.get("remove", {}).pop("size", None))
    frame = read_changes(spark, str(table), 1)
    assert told(frame, "id", "_change_type") == [(1, "delete"), (2, "delete"), (3, "insert")]
    removed = set(table.glob("*.parquet")) - {table / path for path in Peer(str(table)).file_uris()}
    for file in removed:
        file.unlink()
    with pytest.raises(ObjectNotFoundError):
        read_changes(spark, str(table), 1)


def test_data_files_may_have_a_column_of_the_name(spark: SparkSession, tmp_path: Path) -> None:
    """PROTOCOL.md has it null throughout; here it isn't, to show that nobody looks."""
    import pyarrow.parquet as pq

    table = feed_table(tmp_path / "t", id=[1])
    (file,) = table.glob("*.parquet")
    pq.write_table(pa.table({"id": [1], "_change_type": ["delete"]}), file)
    size = file.stat().st_size
    rewrite_commit(
        table, 0, lambda a: a.update(add=a["add"] | {"size": size}) if "add" in a else None
    )
    assert told(read_changes(spark, str(table), 0), "id", "_change_type") == [(1, "insert")]


def test_changes_that_were_not_recorded_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    with pytest.raises(ChangesNotAvailableError, match="the protocol lacks changeDataFeed"):
        read_changes(spark, str(tmp_path), 0)
