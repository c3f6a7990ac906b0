from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta.copies.deletion_list import DELETING, DeletionList
from airflow_delta.copies.lease import CopyBeingDeletedError
from airflow_delta.copies.marker import MARKER, CopyMarker
from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine.errors import InvalidArgumentError, StorageError
from airflow_delta.engine.storage.hidden import make_hidden_name
from airflow_delta.spark import write
from airflow_delta.spark.copy import directory_copies
from airflow_delta.spark.copy.copies import copy_snapshot
from airflow_delta.spark.runtime.hadoop_directories import HadoopDirectories
from tests.spark.conftest import bag, rows_of
from tests.spark.copy.made_copies import DELETION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that each test has a copy of."""
    table = tmp_path_factory.mktemp("written") / "source"
    for number in range(3):
        row = spark.range(number, number + 1).selectExpr("id", "'x y' AS p")
        write(row.coalesce(1), str(table), partition_by=["p"])
    return table


@pytest.fixture
def source(written: Path, tmp_path: Path) -> str:
    """A table of three versions with ids 0, then 0 to 1, then 0 to 2; partitioned by ``p``."""
    return str(shutil.copytree(written, tmp_path / "source"))


def ids(spark: SparkSession, target: Path) -> list[int]:
    return sorted(row["id"] for row in rows_of(spark.read.parquet(str(target))))


def siblings(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_a_parquet_copy_holds_the_version_asked_for(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "a b%"
    result = copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert (result.num_rows, result.num_files) == (2, 2)
    got = rows_of(spark.read.parquet(str(target)))
    assert bag(got) == bag([{"id": 0, "p": "x y"}, {"id": 1, "p": "x y"}])
    marker = json.loads((target / MARKER).read_text())
    assert (marker["table_uri"], marker["version"], marker["num_rows"]) == (source, 1, 2)
    assert siblings(target) == ["a b%", "source"]


def test_a_copy_replaces_an_earlier_one_and_nothing_else(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    for version in (0, 2, 2):
        copy_snapshot(spark, CopyRequest(source, version, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    with pytest.raises(
        InvalidArgumentError, match="a copy of version 2, which is newer than version 1"
    ):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    copy_snapshot(spark, CopyRequest(source, 1, str(target), replace_newer=True))
    assert ids(spark, target) == [0, 1]
    assert siblings(target) == ["copy", "source"]


def test_what_is_no_copy_of_the_table_stays(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    # An empty directory is no loss.
    copy_snapshot(spark, CopyRequest(source, 0, str(foreign)))
    write(spark.range(5), str(tmp_path / "other"))
    with pytest.raises(InvalidArgumentError, match="it holds no copy of this table"):
        copy_snapshot(spark, CopyRequest(str(tmp_path / "other"), 0, str(foreign)))
    (foreign / MARKER).write_text("{")
    with pytest.raises(InvalidArgumentError, match=f"its {MARKER} can't be read"):
        copy_snapshot(spark, CopyRequest(source, 1, str(foreign)))
    (foreign / MARKER).unlink()
    with pytest.raises(InvalidArgumentError, match="which no earlier copy has written"):
        copy_snapshot(spark, CopyRequest(source, 1, str(foreign)))
    assert ids(spark, foreign) == [0]


@pytest.mark.parametrize("format_", ["parquet", "delta"])
@pytest.mark.parametrize("place", ["", "/inside", "/..", "/../link"])
def test_table_and_copy_must_lie_apart(
    spark: SparkSession, source: str, tmp_path: Path, format_: str, place: str
) -> None:
    (tmp_path / "link").symlink_to(source)
    before = sorted(Path(source).rglob("*"))
    with pytest.raises(InvalidArgumentError, match="lie inside one another"):
        copy_snapshot(spark, CopyRequest(source, 0, f"{source}{place}", format_))
    assert sorted(Path(source).rglob("*")) == before


@pytest.mark.parametrize("breaks_off", [False, True])
def test_a_copy_that_fails_leaves_what_was_there(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks_off: bool,
) -> None:
    """A store that renames object by object may break off among them."""
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    rename = HadoopDirectories.rename

    def fails(self: HadoopDirectories, path: str, new_path: str) -> None:
        if ".unfinished-" in path:
            if breaks_off:
                target.mkdir()
                (unfinished,) = tmp_path.glob("*.unfinished-*")
                for name in sorted(file.name for file in unfinished.iterdir())[:3]:
                    (unfinished / name).rename(target / name)
            raise StorageError("no")
        rename(self, path, new_path)

    monkeypatch.setattr(HadoopDirectories, "rename", fails)
    with pytest.raises(StorageError, match="no"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0]
    assert siblings(target) == ["copy", "source"]


def test_a_newer_copy_that_comes_first_wins(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    list_data_files = directory_copies.list_data_files

    def slow(*arguments: Any) -> Any:
        # Another run finishes while this one has written its files.
        monkeypatch.setattr(directory_copies, "list_data_files", list_data_files)
        copy_snapshot(spark, CopyRequest(source, 2, str(target)))
        return list_data_files(*arguments)

    monkeypatch.setattr(directory_copies, "list_data_files", slow)
    with pytest.raises(InvalidArgumentError, match="newer than version 1"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    assert siblings(target) == ["copy", "source"]


def during_exchange(
    monkeypatch: pytest.MonkeyPatch, renamed: str, happens: Callable[[], object]
) -> None:
    """Have something happen once, right before a directory with this suffix, or to it, is renamed."""
    rename = HadoopDirectories.rename

    def slow(self: HadoopDirectories, path: str, new_path: str) -> None:
        if renamed in path + new_path:
            monkeypatch.setattr(HadoopDirectories, "rename", rename)
            happens()
        rename(self, path, new_path)

    monkeypatch.setattr(HadoopDirectories, "rename", slow)


def test_a_newer_copy_that_comes_during_the_exchange_wins(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    newer = CopyRequest(source, 2, str(target))
    during_exchange(monkeypatch, ".replaced-", lambda: copy_snapshot(spark, newer))
    with pytest.raises(InvalidArgumentError, match="newer than version 1"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    assert siblings(target) == ["copy", "source"]


@pytest.mark.parametrize("replaces", [False, True])
def test_a_copy_that_comes_to_the_emptied_place_stays(
    *,
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replaces: bool,
) -> None:
    target = tmp_path / "copy"
    if replaces:
        copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    newer = CopyRequest(source, 2, str(target))
    during_exchange(monkeypatch, ".unfinished-", lambda: copy_snapshot(spark, newer))
    told = "What was there is at .*Delete it once" if replaces else "another run may have"
    with pytest.raises(StorageError, match=told):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    # What was there isn't deleted before the copy has taken its place.
    (*left, _) = siblings(target)[1:]
    assert [ids(spark, tmp_path / name) for name in left] == [[0]] * replaces
    copy_snapshot(spark, newer)


@pytest.mark.parametrize("marker_is", ["theirs", "ours"])
def test_copies_that_come_to_lie_among_one_another_are_parted(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    marker_is: str,
) -> None:
    """As in an object store, which renames object by object."""
    target, other = tmp_path / "copy", tmp_path / "other"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    copy_snapshot(spark, CopyRequest(source, 2, str(other)))
    rename = HadoopDirectories.rename

    def mixing(self: HadoopDirectories, path: str, new_path: str) -> None:
        rename(self, path, new_path)
        if ".unfinished-" in path:
            for file in other.iterdir():
                if marker_is == "theirs" or file.name != MARKER:
                    shutil.copy(file, target)

    monkeypatch.setattr(HadoopDirectories, "rename", mixing)
    with pytest.raises(StorageError, match=r"another run copied to the target .* at the same time"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    theirs = {file.name for file in other.iterdir()} - ({MARKER} if marker_is == "ours" else set())
    assert {file.name for file in target.iterdir()} == theirs
    assert ids(spark, target) == [0, 1, 2]


def test_a_place_that_vanishes_during_the_exchange(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    during_exchange(monkeypatch, ".replaced-", lambda: shutil.rmtree(target))
    with pytest.raises(StorageError, match=r"another run may have .*try again"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert siblings(target) == ["source"]


def test_a_parquet_copy_of_no_rows_has_the_columns(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, null AS nothing WHERE 1 = 0"), str(tmp_path / "none"))
    target = tmp_path / "copy"
    assert copy_snapshot(spark, CopyRequest(str(tmp_path / "none"), 0, str(target))).num_rows == 0
    assert spark.read.parquet(str(target)).columns == ["id"]


def test_a_copy_follows_any_schema(spark: SparkSession, source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    row = pa.table({"id": [9], "p": ["z"], "q": ["new"]})
    write_deltalake(source, row, mode="append", schema_mode="merge")
    copy_snapshot(spark, CopyRequest(source, 3, str(target)))
    assert ids(spark, target) == [0, 1, 2, 9]
    assert "q" in spark.read.parquet(str(target)).columns


def test_a_copy_of_one_format_follows_another_but_not_a_delta_table(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target), "json"))
    copy_snapshot(spark, CopyRequest(source, 1, str(target), "csv"))
    assert not list(target.glob("part-*.json"))
    with pytest.raises(InvalidArgumentError, match="it holds a copy as csv, not as delta"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target), "delta"))
    shutil.rmtree(target)
    copy_snapshot(spark, CopyRequest(source, 1, str(target), "delta"))
    with pytest.raises(InvalidArgumentError, match="it holds a Delta table"):
        copy_snapshot(spark, CopyRequest(source, 2, str(target)))
    shutil.rmtree(target / "_delta_log")
    with pytest.raises(InvalidArgumentError, match="it holds a copy as delta, not as parquet"):
        copy_snapshot(spark, CopyRequest(source, 2, str(target)))
    assert list(target.rglob("*.parquet"))


def test_what_somebody_has_put_into_a_copy_stays(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    (target / "notes").mkdir()
    (target / "notes" / "part-1").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="it holds notes/part-1, which no copy has"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert (target / "notes" / "part-1").read_text() == "mine"


def test_a_part_that_somebody_has_put_into_a_copy_stays(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    """By a name as pyarrow gives it."""
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    (target / "part-0.parquet").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="it holds 2 files, and the copy wrote 1"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert (target / "part-0.parquet").read_text() == "mine"
    target = tmp_path / "file"
    target.write_text("mine")
    with pytest.raises(InvalidArgumentError, match="it is a file"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert target.read_text() == "mine"


def test_what_a_killed_writer_of_a_marker_has_left_is_nobodys(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    for version in (0, 1):
        for name in (MARKER, DELETING):
            (target / make_hidden_name(name)).write_text("{")
        copy_snapshot(spark, CopyRequest(source, version, str(target)))
        assert not list(target.glob("*.tmp"))


def test_an_expired_copy_is_replaced_whatever_its_version(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    made = copy_snapshot(spark, CopyRequest(source, 2, str(target), expire_after_ms=0))
    marker = json.loads((target / MARKER).read_text())
    assert made.expires_at_ms is not None
    assert marker["expires_at"] == marker["made_at"]
    copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1]
    assert json.loads((target / MARKER).read_text())["expires_at"] is None


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_no_copy_is_made_where_an_expired_one_is_being_deleted(
    spark: SparkSession, source: str, tmp_path: Path, format_: str
) -> None:
    target = tmp_path / "copy"
    request = CopyRequest(source, 2, str(target), format_, expire_after_ms=0)
    copy_snapshot(spark, request)
    marker = CopyMarker.from_json((target / MARKER).read_bytes())
    (target / DELETING).write_bytes(DeletionList(DELETION, 0, True, marker, ()).to_json())
    before = sorted(target.rglob("*"))
    with pytest.raises(CopyBeingDeletedError, match="an expired copy is being deleted there"):
        copy_snapshot(spark, request)
    assert sorted(target.rglob("*")) == before
    assert siblings(target) == ["copy", "source"]


def test_a_deletion_that_begins_while_a_copy_is_exchanged(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the old copy is moved away, or when the place is empty for a moment."""
    target = tmp_path / "copy"
    request = CopyRequest(source, 0, str(target), expire_after_ms=0)
    copy_snapshot(spark, request)
    marker = CopyMarker.from_json((target / MARKER).read_bytes())
    content = DeletionList(DELETION, 0, True, marker, ()).to_json()
    rename = HadoopDirectories.rename

    def begins(moment: str) -> None:
        def slow(self: HadoopDirectories, path: str, new_path: str) -> None:
            if moment == "before" and ".replaced-" in new_path:
                (target / DELETING).write_bytes(content)
            rename(self, path, new_path)
            if moment == "behind" and ".unfinished-" in path:
                (target / DELETING).write_bytes(content)

        monkeypatch.setattr(HadoopDirectories, "rename", slow)

    for moment, found in (("before", [0]), ("behind", [0, 1])):
        begins(moment)
        with pytest.raises(CopyBeingDeletedError, match="an expired copy is being deleted there"):
            copy_snapshot(spark, replace(request, version=1))
        assert ids(spark, target) == found
        assert siblings(target) == ["copy", "source"]
        (target / DELETING).unlink()


def test_an_unknown_format_is_refused(spark: SparkSession, source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown format 'orc'"):
        copy_snapshot(spark, CopyRequest(source, 0, str(tmp_path / "copy"), "orc"))
