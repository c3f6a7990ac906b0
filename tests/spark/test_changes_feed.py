from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.spark import changes_feed, read_changes
from airflow_delta.spark.changes_feed import append_changes
from airflow_delta.spark.changes_rules import FeedRequest
from airflow_delta.spark.changes_told import MARKER
from airflow_delta.spark.writing import write_table
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NONE = {"insert": 0, "delete": 0, "update_preimage": 0, "update_postimage": 0}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three rows in version 0; one is updated in version 1, and one is deleted in version 2."""
    uri = str(tmp_path / "table")
    write_deltalake(
        uri,
        pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]}),
        partition_by=["day"],
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    Peer(uri).update({"id": "7"}, predicate="id = 1")
    Peer(uri).delete("id = 2")
    return uri


@pytest.fixture(params=["delta", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kept(spark: SparkSession, target: Path, kind: str) -> list[dict[str, Any]]:
    """What readers of a target see."""
    if kind == "delta":
        rows: list[dict[str, Any]] = pa.table(Peer(str(target)).to_pyarrow_table()).to_pylist()
        return rows
    return rows_of(spark.read.parquet(str(target)).drop("change_versions"))


def test_ranges_are_appended_and_none_twice(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "changes"

    def append(start: int, end: int) -> changes_feed.FeedResult:
        return append_changes(spark, FeedRequest(table, start, end, str(target), kind))

    first = append(0, 0)
    assert (first.counts, first.appended) == ({**NONE, "insert": 3}, True)
    second = append(1, 2)
    updates = {"update_preimage": 1, "update_postimage": 1}
    assert second.counts == {**NONE, **updates, "delete": 1}
    assert bag(kept(spark, target, kind)) == bag(rows_of(read_changes(spark, table, 0)))
    before = sorted(target.rglob("*"))
    again = append(1, 2)
    assert (again.counts, again.appended, again.num_files) == (second.counts, False, 0)
    assert again.committed_version == second.committed_version
    assert append(0, 1).appended is False
    write_deltalake(table, pa.table({"id": [9], "day": ["c"]}), mode="append")
    with pytest.raises(
        InvalidArgumentError, match="of versions 2 to 2 already: ask for the others"
    ):
        append(2, 3)
    assert sorted(target.rglob("*")) == before


def test_a_target_of_another_table_is_refused(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    other, target = tmp_path / "other", str(tmp_path / "changes")
    append_changes(spark, FeedRequest(table, 0, 0, target, kind))
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(other), pa.table({"id": [1], "day": ["a"]}), configuration=feed)
    with pytest.raises(InvalidArgumentError, match="has the changes of another table"):
        append_changes(spark, FeedRequest(str(other), 0, 0, target, kind))


def test_what_fails_leaves_no_target(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "changes"
    for file in Path(table).glob("_change_data/**/*.parquet"):
        file.unlink()
    request = FeedRequest(table, 0, 2, str(target), kind)
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        append_changes(spark, request)
    assert [path for path in target.rglob("*") if path.is_file()] == []
    assert append_changes(spark, FeedRequest(table, 0, 0, str(target), kind)).appended


def test_versions_without_changes_are_marked_as_told(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    write_deltalake(table, pa.table({"id": [8], "day": ["a"]}), mode="append")
    Peer(table).optimize.compact()
    request = FeedRequest(table, 4, 4, str(tmp_path / "changes"), kind)
    assert append_changes(spark, request).counts == NONE
    assert append_changes(spark, request).appended is False


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_killed_run_has_left_is_not_told_twice(
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,
) -> None:
    """Without a marker, and after a kill the next run has more versions to tell."""
    target = tmp_path / "changes"

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    if not at_once:
        # As in object stores.
        monkeypatch.setattr(changes_feed, "_RENAMED_AT_ONCE", frozenset())
    with monkeypatch.context() as patch:
        patch.setattr(changes_feed._Feed, "_mark", killed)
        with pytest.raises(KeyboardInterrupt):
            append_changes(spark, FeedRequest(table, 0, 1, str(target), "parquet"))
    # Where renaming is one step, a range is never without its marker.
    assert bool(list(target.glob("change_versions=*"))) is not at_once
    (target / "_unfinished-by-somebody").mkdir()
    (target / "_unfinished-by-somebody" / "part-0.parquet").write_bytes(b"half")
    assert append_changes(spark, FeedRequest(table, 0, 2, str(target), "parquet")).appended
    assert len(kept(spark, target, "parquet")) == 6
    (marker,) = target.rglob(MARKER)
    said = json.loads(marker.read_text())
    assert (said["start_version"], said["end_version"], said["counts"]["insert"]) == (0, 2, 3)


def test_what_comes_before_the_rest_is_no_more_taken_for_told(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "changes"
    results = [
        append_changes(spark, FeedRequest(table, start, end, str(target), kind))
        for start, end in ((2, 2), (0, 0), (1, 1), (0, 2))
    ]
    assert [result.appended for result in results] == [True, True, True, False]
    assert bag(kept(spark, target, kind)) == bag(rows_of(read_changes(spark, table, 0)))


def test_a_faster_run_is_found_before_the_commit(
    spark: SparkSession, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at the target and the write, another run appends the same."""
    request = FeedRequest(table, 0, 2, str(tmp_path / "changes"), "delta")

    def overtaken(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(changes_feed, "write_table", write_table)
        assert append_changes(spark, request).appended
        return write_table(*args, **options)

    monkeypatch.setattr(changes_feed, "write_table", overtaken)
    found = append_changes(spark, request)
    assert (found.appended, found.committed_version) == (False, 0)
    assert found.counts == {"insert": 3, "delete": 1, "update_preimage": 1, "update_postimage": 1}


def test_what_no_feed_has_written_is_left_alone(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgumentError, match=r"holds notes\.txt, which no change feed"):
        append_changes(spark, FeedRequest(table, 0, 2, str(target), "parquet"))
    write_deltalake(str(tmp_path / "sums"), pa.table({"sum": [1]}))
    with pytest.raises(ConstraintViolationError, match="id"):
        append_changes(spark, FeedRequest(table, 0, 2, str(tmp_path / "sums")))
    assert Peer(str(tmp_path / "sums")).version() == 0


@pytest.mark.parametrize("place", ["inside", "around"])
def test_table_and_target_lie_apart(spark: SparkSession, table: str, place: str) -> None:
    target = f"{table}/changes" if place == "inside" else str(Path(table).parent)
    with pytest.raises(InvalidArgumentError, match="lie inside one another"):
        append_changes(spark, FeedRequest(table, 0, 2, target))


def test_a_format_that_there_is_none_of(spark: SparkSession, table: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown format 'csv' of a change feed"):
        append_changes(spark, FeedRequest(table, 0, 2, "/c", "csv"))
