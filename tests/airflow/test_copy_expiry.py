"""Expired copies go, and nothing else does."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake import DeltaTable as Peer

from airflow_delta.copies import deletion as copy_deletion
from airflow_delta.copies.deletion_list import DELETING, LEASE_MS, DeletionList
from airflow_delta.copies.lease import CopyBeingDeletedError
from airflow_delta.copies.marker import MARKER, CopyMarker
from airflow_delta.copies.request import LONGEST_EXPIRY_MS, CopyRequest, now_ms
from airflow_delta.copies.source import copy_app_id
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.hooks.copy_expiry import ExpiredCopies
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.snapshot_copy import SnapshotCopy
from airflow_delta.operators.durations import as_duration_ms
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from tests.airflow.test_operators import context
from tests.conftest import write_sales
from tests.spark.copy.made_copies import (
    DELETION,
    LATER,
    LONG_AGO,
    NEVER,
    RUN,
    contents,
    delta_copy,
    files_copy,
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with the table ``sales``."""
    write_sales(tmp_path / "sales", version=1)
    return tmp_path


def deleted(lake: Path, target: str = "new") -> list[str]:
    found = ExpiredCopies(
        DeltaHook(), table_uri=str(lake / "sales"), target_uri=str(lake / target)
    ).delete()
    assert all(not Path(place).exists() for place in found)
    return sorted(Path(place).name for place in found)


def test_expired_copies_go_and_others_stay(lake: Path) -> None:
    files_copy(lake, "old_files", expires=LONG_AGO)
    delta_copy(lake, "old_table", expires=LONG_AGO)
    files_copy(lake, "new", expires=LONG_AGO)
    stay = [
        files_copy(lake, "young", expires=LATER),
        files_copy(lake, "kept", expires=NEVER),
        files_copy(lake, "other_source", expires=LONG_AGO, table_id="another"),
        delta_copy(lake, "kept_table", expires=NEVER),
        lake / "sales",
        lake / "new",
    ]
    nested = lake / "deeper"
    nested.mkdir()
    shutil.copytree(lake / "old_files", nested / "old_files")
    (lake / "broken").mkdir()
    (lake / "broken" / MARKER).write_text("{")
    before = [contents(place) for place in (*stay, nested, lake / "broken")]
    assert deleted(lake) == ["old_files", "old_table"]
    assert [contents(place) for place in (*stay, nested, lake / "broken")] == before
    assert deleted(lake) == []


def test_copies_of_a_table_that_is_replaced_go_as_well(lake: Path) -> None:
    files_copy(lake, "of_it", expires=LONG_AGO)
    files_copy(lake, "of_another", expires=LONG_AGO, table_id="another")
    replace_table(lake / "sales")
    assert deleted(lake) == ["of_it"]


def test_a_copy_of_which_nobody_can_tell_any_more_stays_with_a_word(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files_copy(lake, "of_it_perhaps", expires=LONG_AGO)
    log = replace_table(lake / "sales")
    DeltaTable(str(lake / "sales")).checkpoint()
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert any("of_it_perhaps' is kept" in line and "any more" in line for line in caplog.messages)


def replace_table(table: Path) -> Path:
    """Give a table another id in a version of its own, as REPLACE TABLE does; return its log."""
    log = table / "_delta_log"
    actions = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
    metadata = next(action for action in actions if "metaData" in action)
    metadata["metaData"]["id"] = "what REPLACE TABLE has given it"
    (log / f"{2:020}.json").write_text(json.dumps(metadata))
    return log


def test_a_copy_that_holds_more_than_was_copied_stays(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (files_copy(lake, "file", expires=LONG_AGO) / "notes.txt").write_text("mine")
    (files_copy(lake, "part", expires=LONG_AGO) / "part-00001-y.parquet").write_text("mine")
    inside = files_copy(lake, "inside", expires=LONG_AGO) / "theirs"
    write_deltalake(inside, pa.table({"id": [1]}))
    write_deltalake(
        delta_copy(lake, "appended", expires=LONG_AGO), pa.table({"id": [2]}), mode="append"
    )
    # Removed again: a newer version all the same, though all files are those of the copy.
    Peer(delta_copy(lake, "emptied", expires=LONG_AGO)).delete()
    write_deltalake(delta_copy(lake, "nested", expires=LONG_AGO) / "t", pa.table({"id": [2]}))
    shutil.rmtree(delta_copy(lake, "logless", expires=LONG_AGO) / "_delta_log")
    # The marker of a copy that somebody has emptied by hand, and another table came there.
    delta_copy(lake, "replaced", expires=LONG_AGO, target_id="of the old one")
    places = ("file", "part", "inside", "appended", "emptied", "nested", "logless", "replaced")
    before = [contents(lake / name) for name in places]
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert [contents(lake / name) for name in places] == before
    for name, reason in {
        "file": "notes.txt, which no copy has written",
        "part": "it holds 2 files, and the copy wrote 1",
        "inside": "theirs/",
        "emptied": "its newest version is 1, and the copy is 0",
        "nested": "t/",
        "logless": "its log is gone",
        "replaced": "and the copy was of the old one",
    }.items():
        assert any(f"/{name}' is kept" in line and reason in line for line in caplog.messages), name


def test_a_place_that_cannot_be_read_keeps_no_other(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files_copy(lake, "old", expires=LONG_AGO)
    for name, file in (("looped", MARKER), ("looped_list", DELETING)):
        place = files_copy(lake, name, expires=LONG_AGO)
        (place / file).unlink(missing_ok=True)
        (place / file).symlink_to(place / file)
    odd = files_copy(lake, "odd", expires=LONG_AGO, table_id="another")
    text = (odd / MARKER).read_text()
    (odd / MARKER).write_text(text.replace(f"{lake}/odd", "/\\ud800"))
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == ["old"]
    for name, reason in {
        "looped": "is a symbolic link",
        "looped_list": "is a symbolic link",
        "odd": f"{MARKER} can't be read",
    }.items():
        assert any(f"/{name}' is kept" in line and reason in line for line in caplog.messages), name


def test_a_deletion_that_cannot_even_begin_is_a_warning(
    lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files_copy(lake, "old", expires=LONG_AGO)

    def fails(storage: LocalStorage, directory: str) -> Any:
        raise StorageError("the store has failed", table=storage.root, path=directory)

    monkeypatch.setattr(LocalStorage, "level", fails)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    told = f"no expired copies beside {lake}/new are deleted: {lake}: the store has failed"
    assert any(told in line for line in caplog.messages)
    assert (lake / "old").exists()


def test_links_are_not_followed(
    lake: Path, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(files_copy(lake, "real", expires=LONG_AGO), elsewhere / "copy")
    (lake / "linked").symlink_to(elsewhere / "copy")
    (elsewhere / "data").mkdir()
    (elsewhere / "data" / "part-1").write_text("theirs")
    holding = files_copy(lake, "holding", expires=LONG_AGO)
    (holding / "part-00000-x.parquet").unlink()
    (holding / "part-00000-x.parquet").symlink_to(elsewhere / "data" / "part-1")
    for name in ("_delta_log", RUN):
        # Whatever it leads to, and by whatever name it is found.
        table = delta_copy(lake, f"linked{name}", expires=LONG_AGO)
        (table / name).rename(elsewhere / name)
        (table / name).symlink_to(elsewhere / name)
    # The target by another name.
    (lake / "current").symlink_to(lake / "real")
    before = contents(elsewhere)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake, target="current") == []
    assert contents(elsewhere) == before
    for name in ("_delta_log", RUN, "part-00000-x.parquet"):
        reason = f"it holds {name}, which isn't a regular file and which no copy has made"
        assert any(reason in line for line in caplog.messages)
    for name in ("linked_delta_log", f"linked{RUN}", "holding"):
        assert (lake / name / MARKER).exists()
    assert (lake / "real").exists()
    assert (lake / "linked").exists()


def test_a_copy_of_a_copy_is_somebody_elses(lake: Path) -> None:
    """Whoever has made it by other means hasn't asked for it to be deleted."""
    shutil.copytree(files_copy(lake, "sales_1", expires=LONG_AGO), lake / "precious")
    files_copy(lake, "unsaid", expires=LONG_AGO, target_uri=None)
    files_copy(lake, "far", expires=LONG_AGO, target_uri="s3://else/far")
    # By another name of the same place.
    (lake / "link").symlink_to(lake)
    files_copy(lake, "linked", expires=LONG_AGO, target_uri=str(lake / "link" / "linked"))
    assert deleted(lake) == ["linked", "sales_1"]
    assert {path.name for path in lake.iterdir()} >= {"precious", "unsaid", "far"}


def test_a_table_inside_of_a_copy_is_not_deleted_with_it(lake: Path) -> None:
    outer = files_copy(lake, "outer", expires=LONG_AGO)
    shutil.move(lake / "sales", outer / "sales")
    found = ExpiredCopies(
        DeltaHook(), table_uri=str(outer / "sales"), target_uri=str(lake / "new")
    ).delete()
    assert found == []
    assert DeltaTable(str(outer / "sales")).exists()


class Failing:
    """Lets all changes of a store fail but for the first few; of several files some are deleted then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 100
        delete = LocalStorage.delete

        def wrapped(original: Any) -> Any:
            def change(storage: LocalStorage, *arguments: Any) -> None:
                self.left -= 1
                if self.left < 0:
                    if original is delete:
                        delete(storage, [*arguments[0]][:1])
                    raise StorageError("the store has failed")
                original(storage, *arguments)

            return change

        for name in ("create", "replace", "delete"):
            monkeypatch.setattr(LocalStorage, name, wrapped(getattr(LocalStorage, name)))


@pytest.mark.parametrize(("kind", "changes"), [(files_copy, 5), (delta_copy, 6)])
def test_a_deletion_that_is_broken_off_goes_on(
    lake: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, changes: int
) -> None:
    """Whichever change of the store fails; and an hour must pass, for the run may be still at work."""
    store, now = Failing(monkeypatch), [now_ms()]
    monkeypatch.setattr(copy_deletion, "now_ms", lambda: now[0])
    for step in range(10):
        place = kind(lake, f"old{step}", expires=LONG_AGO)
        before, store.left = contents(place), step
        if deleted(lake):
            break
        store.left = 100
        if not contents(place):
            continue  # the very last change was made, and nothing is left
        if step:
            assert (place / DELETING).exists()
            after = contents(place)
            assert deleted(lake) == []
            assert contents(place) == after, "left to the run that has begun"
            now[0] += LEASE_MS
        else:
            assert contents(place) == before
        assert deleted(lake) == [place.name]
    assert step == changes, "the list, twice; the log, the data, the marker, the list"


def test_a_deletion_that_was_not_decided_is_decided_anew(lake: Path) -> None:
    place = files_copy(lake, "renewed", expires=LATER)
    marker = CopyMarker.from_json((place / MARKER).read_bytes())
    (place / DELETING).write_bytes(DeletionList(DELETION, 0, False, marker, ()).to_json())
    assert deleted(lake) == []
    assert sorted(path.name for path in place.iterdir()) == [
        *(".part-00000-x.parquet.crc", MARKER, "part-00000-x.parquet")
    ]
    gone = files_copy(lake, "gone", expires=LONG_AGO)
    marker = CopyMarker.from_json((gone / MARKER).read_bytes())
    (gone / DELETING).write_bytes(DeletionList(DELETION, 0, False, marker, ()).to_json())
    assert deleted(lake) == ["gone"]


def test_a_list_that_is_none_keeps_the_copy(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = files_copy(lake, "odd", expires=LONG_AGO)
    (place / DELETING).write_text("{}")
    before = contents(place)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert contents(place) == before
    assert any(f"{DELETING} can't be read" in line for line in caplog.messages)


def test_no_copy_is_made_where_one_is_being_deleted(lake: Path) -> None:
    """It fails so that the task is tried again, before Spark starts."""
    place = delta_copy(lake, "old", expires=LONG_AGO)
    marker = CopyMarker.from_json((place / MARKER).read_bytes())
    (place / DELETING).write_bytes(DeletionList(DELETION, now_ms(), True, marker, ()).to_json())
    operator = TimeTravelSnapshotOperator(
        task_id="copy", table_uri=str(lake / "sales"), target_uri=str(place)
    )
    with pytest.raises(CopyBeingDeletedError, match="an expired copy is being deleted there"):
        operator.execute(context())


def test_a_retry_finds_no_copy_that_is_being_deleted(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the deletion begins behind the first look."""
    source, place = DeltaTable(str(lake / "sales")), lake / "old"
    marks = [Transaction("a", 1), Transaction(copy_app_id(source.snapshot().metadata.id), 1)]
    properties = CommitProperties(app_transactions=marks)
    write_deltalake(place, pa.table({"id": [1]}), commit_properties=properties)
    copy = SnapshotCopy(
        DeltaHook(),
        table_uri=source.uri,
        version=1,
        target_uri=str(place),
        target_format="delta",
        identity=("a", 1),
        replace_newer=False,
    )
    assert (copy.earlier() or {})["target_version"] == 0
    find = DeltaHook.committed_version

    def slow(*arguments: Any, **more: Any) -> int | None:
        marker = CopyMarker.from_json((place / MARKER).read_bytes())
        (place / DELETING).write_bytes(DeletionList(DELETION, now_ms(), True, marker, ()).to_json())
        return find(*arguments, **more)

    monkeypatch.setattr(DeltaHook, "committed_version", slow)
    with pytest.raises(CopyBeingDeletedError, match="an expired copy is being deleted there"):
        copy.earlier()


def test_the_longest_expiry_of_the_operator_can_be_asked_for() -> None:
    longest = as_duration_ms(LONGEST_EXPIRY_MS / 1000, name="expire_after")
    assert CopyRequest("t", 0, "c", expire_after_ms=longest).expire_after_ms == LONGEST_EXPIRY_MS
    with pytest.raises(ValueError, match="expected a timedelta"):
        as_duration_ms(LONGEST_EXPIRY_MS / 1000 + 1, name="expire_after")


@pytest.mark.deep
def test_a_run_makes_its_copy_and_deletes_those_that_have_expired(lake: Path) -> None:
    """With a real job."""
    files_copy(lake, "sales_1", expires=LONG_AGO)
    operator = TimeTravelSnapshotOperator(
        task_id="copy",
        table_uri=str(lake / "sales"),
        target_uri=str(lake / "sales_2"),
        expire_after="P7D",
    )
    told = operator.execute(context())
    assert told["deleted_copies"] == [str(lake / "sales_1")]
    marker = CopyMarker.from_json((lake / "sales_2" / MARKER).read_text())
    assert (marker.made_at_ms or 0) + 7 * 86_400_000 == marker.expires_at_ms
    assert told["expires_at"] == marker.expires_at
    assert sorted(path.name for path in lake.iterdir()) == ["sales", "sales_2"]
    # A retry finds the copy, and when it expires.
    again = operator.execute(context())
    assert (again["expires_at"], again["deleted_copies"]) == (marker.expires_at, [])


def test_an_expiry_without_a_copy_makes_no_sense(lake: Path) -> None:
    with pytest.raises(ValueError, match="expire_after is given without target_uri"):
        TimeTravelSnapshotOperator(task_id="pin", table_uri=str(lake / "sales"), expire_after="P7D")
