from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.change_feeds.directories import MARKER
from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, InvalidArgumentError, StorageError
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_changes, write
from airflow_delta.spark.changes import feed as changes_feed
from airflow_delta.spark.changes.feed import append_changes
from airflow_delta.spark.ingest.write import write_table
from tests.deep import deep_but_for
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NONE = {"insert": 0, "delete": 0, "update_preimage": 0, "update_postimage": 0}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that each test has a copy of."""
    uri = str(tmp_path_factory.mktemp("written") / "table")
    write_deltalake(
        uri,
        pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]}),
        partition_by=["day"],
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    Peer(uri).update({"id": "7"}, predicate="id = 1")
    Peer(uri).delete("id = 2")
    return uri


@pytest.fixture
def table(written: str, tmp_path: Path) -> str:
    """Three rows in version 0; one is updated in version 1, and one is deleted in version 2."""
    return str(shutil.copytree(written, tmp_path / "table"))


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
        InvalidArgumentError, match="of versions 2 to 2 already: request the others"
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


def test_versions_without_changes_are_marked_in_a_partitioned_table(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    write_deltalake(table, pa.table({"id": [8], "day": ["a"]}), mode="append")
    Peer(table).optimize.compact()
    target = str(tmp_path / "changes")
    fields = read_changes(spark, table, 4, 4).schema
    write(spark.createDataFrame([], fields), target, partition_by=["day"])
    request = FeedRequest(table, 4, 4, target, "delta")
    result = append_changes(spark, request)
    assert (result.counts, result.appended) == (NONE, True)
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
        monkeypatch.setattr(changes_feed, "RENAMED_AT_ONCE", frozenset())
    with monkeypatch.context() as patch:
        if at_once:
            patch.setattr(changes_feed.HadoopDirectories, "rename", killed)
        else:
            patch.setattr(changes_feed, "_create_marker", killed)
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


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ((0, 2), (0, 2)),
        pytest.param((0, 1), (0, 2), marks=pytest.mark.deep),
        pytest.param((0, 2), (0, 1), marks=pytest.mark.deep),
    ],
)
@pytest.mark.parametrize("moved", deep_but_for([0, 1], 1))
def test_two_runs_at_a_time_double_nothing_and_lose_nothing(
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mine: tuple[int, int],
    others: tuple[int, int],
    moved: int,
) -> None:
    """A run that was taken for dead goes on copying, as object stores rename, after its retry is done."""
    target, rename = tmp_path / "changes", changes_feed.HadoopDirectories.rename

    def append(versions: tuple[int, int]) -> bool | type[Exception]:
        try:
            request = FeedRequest(table, *versions, str(target), "parquet")
            return append_changes(spark, request).appended
        except (CommitConflictError, InvalidArgumentError) as error:
            return type(error)

    overtaking = []

    def slowly(_: Any, old: str, new: str) -> None:
        """A file is copied or none, then another run does all of its work, then the rest is copied."""
        monkeypatch.setattr(changes_feed.HadoopDirectories, "rename", rename)
        files = sorted(Path(old.removeprefix("file:")).glob("part-*"))
        assert len(files) > 1
        for number, file in enumerate(files):
            if number == moved:
                overtaking.append(append(others))
            folder = Path(new.removeprefix("file:"))
            folder.mkdir(parents=True, exist_ok=True)
            file.rename(folder / file.name)

    monkeypatch.setattr(changes_feed, "RENAMED_AT_ONCE", frozenset())
    monkeypatch.setattr(changes_feed.HadoopDirectories, "rename", slowly)
    # The one that came first to be complete stays so, and the files of the other one go.
    assert append(mine) is CommitConflictError
    assert overtaking == [True]
    told = bag(rows_of(read_changes(spark, table, *others)))
    assert bag(kept(spark, target, "parquet")) == told
    assert append(mine) is (False if others[1] >= mine[1] else InvalidArgumentError)
    assert bag(kept(spark, target, "parquet")) == told


@pytest.mark.parametrize("marked", [True, False])
def test_a_run_whose_files_another_one_deletes_takes_its_marker_back(
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    marked: bool,
) -> None:
    """The other one has looked before there was a marker, and deletes before or after it comes."""
    target, create = tmp_path / "changes", changes_feed._create_marker
    request = FeedRequest(table, 0, 2, str(target), "parquet")

    def deleted(*marker: Any) -> None:
        if marked:
            create(*marker)
        next(target.glob("change_versions=*/part-*")).unlink()
        if not marked:
            create(*marker)

    monkeypatch.setattr(changes_feed, "RENAMED_AT_ONCE", frozenset())
    with monkeypatch.context() as patch:
        patch.setattr(changes_feed, "_create_marker", deleted)
        with pytest.raises(CommitConflictError, match="whose own files are deleted again"):
            append_changes(spark, request)
    assert list(target.rglob("part-*")) == list(target.rglob(MARKER)) == []
    assert append_changes(spark, request).appended


@pytest.mark.parametrize("others", deep_but_for([(0, 2), (0, 1)], (0, 1)))
def test_a_range_that_is_complete_after_the_last_look_stays(
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    others: tuple[int, int],
) -> None:
    """In a file system the same range can't be renamed to; an overlapping one is found afterwards."""
    target, rename = tmp_path / "changes", changes_feed.HadoopDirectories.rename

    def overtaken(*args: Any) -> None:
        monkeypatch.setattr(changes_feed.HadoopDirectories, "rename", rename)
        other = FeedRequest(table, *others, str(target), "parquet")
        assert append_changes(spark, other).appended
        rename(*args)

    monkeypatch.setattr(changes_feed.HadoopDirectories, "rename", overtaken)
    with pytest.raises((CommitConflictError, StorageError)):
        append_changes(spark, FeedRequest(table, 0, 2, str(target), "parquet"))
    told = bag(rows_of(read_changes(spark, table, *others)))
    assert bag(kept(spark, target, "parquet")) == told
    assert len(list(target.rglob(MARKER))) == 1


def test_columns_that_the_table_gets_are_added_to_its_target_first(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "changes")
    append_changes(spark, FeedRequest(table, 0, 2, target))
    DeltaTable(table).alter.add_columns([StructField("x", LONG)])
    write(spark.sql("SELECT 5L AS id, 'c' AS day, 6L AS x"), table)
    request = FeedRequest(table, 3, 4, target)
    with pytest.raises(
        InvalidArgumentError, match=r"lacks the columns \['x'\], .*add_columns, and"
    ):
        append_changes(spark, request)
    DeltaTable(target).alter.add_columns([StructField("x", LONG)])
    assert append_changes(spark, request).counts == {**NONE, "insert": 1}
    assert Counter(row["x"] for row in kept(spark, Path(target), "delta")) == {None: 6, 6: 1}


def test_columns_that_need_mapping_go_to_parquet(spark: SparkSession, tmp_path: Path) -> None:
    uri, target = str(tmp_path / "table"), tmp_path / "changes"
    properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    DeltaTable.create(uri, StructType((StructField("x y", LONG),)), properties=properties)
    with pytest.raises(InvalidArgumentError, match=r"\['x y'\] need .* choose the format parquet"):
        append_changes(spark, FeedRequest(uri, 0, 0, str(target)))
    assert not target.exists()
    assert append_changes(spark, FeedRequest(uri, 0, 0, str(target), "parquet")).appended
    assert "x y" in spark.read.parquet(str(target)).columns


def test_a_delta_table_is_not_made_inside_a_parquet_target(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    target = tmp_path / "changes"
    append_changes(spark, FeedRequest(table, 0, 0, str(target), "parquet"))
    with pytest.raises(InvalidArgumentError, match=r"holds change_versions=.*choose that format"):
        append_changes(spark, FeedRequest(table, 0, 2, str(target)))
    assert len(list(target.iterdir())) == 1


def test_what_is_there_needs_no_versions_that_cleanup_has_taken(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    request = FeedRequest(table, 0, 1, str(tmp_path / "changes"), kind)
    assert append_changes(spark, request).appended
    DeltaTable(table).checkpoint()
    for version in (0, 1):
        (Path(table) / "_delta_log" / f"{version:020}.json").unlink()
    assert append_changes(spark, request).appended is False


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
    with pytest.raises(InvalidArgumentError, match="no change feed has written it"):
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
