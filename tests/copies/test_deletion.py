"""A deletion takes what was listed and nothing else, whatever copies and people do meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.copies import deletion as copy_deletion
from airflow_delta.copies.deletion import delete_copy
from airflow_delta.copies.deletion_list import (
    DELETING,
    LEASE_MS,
    DeletionList,
    read_list,
    write_list,
)
from airflow_delta.copies.lease import CopyBeingDeletedError, CopyWatch
from airflow_delta.copies.marker import MARKER, read_marker, write_marker
from airflow_delta.copies.request import CopyRequest, mark_delta_copy
from airflow_delta.copies.source import CopySource, copy_app_id
from airflow_delta.engine import DeltaTable, listen_to_progress
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import DeltaError, StorageError
from airflow_delta.engine.storage.local import LocalStorage
from tests.conftest import write_sales
from tests.spark.copy.made_copies import (
    DELETION,
    LONG_AGO,
    NEVER,
    RUN,
    contents,
    delta_copy,
    files_copy,
)

NEW_RUN = RUN.replace("0", "1")
STEPS = ("read", "list", "walk", "create", "replace", "delete")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with the table ``sales``."""
    write_sales(tmp_path / "sales", version=1)
    return tmp_path


def delete(place: Path) -> str | None:
    table = DeltaTable(str(place))
    begun = read_list(table.storage)
    marker = read_marker(table.storage) or (begun and begun.marker)
    assert marker is not None
    return delete_copy(table, marker)


def copy_to(place: Path, source: CopySource) -> None:
    """What a clone does at its target: it keeps the file that is there, and brings another one."""
    table = DeltaTable(str(place))
    request = CopyRequest(
        source.table.uri, source.snapshot.version, str(place), "delta", expire_after_ms=10**9
    )
    watch = CopyWatch(request, table.storage)
    if not table.exists():
        raise CopyBeingDeletedError("a copy that starts afterwards is none of these tests")
    transaction = table.transaction("CLONE")
    transaction.set_transaction(copy_app_id(source.id), source.snapshot.version)
    table.storage.create(f"{NEW_RUN}/part-0.parquet", b"rows")
    watch.check()
    version = transaction.commit().version
    held = watch.check()
    mark_delta_copy(request, source, table.snapshot(version), held)


@contextmanager
def meanwhile(step: int, work: Callable[[], object]) -> Iterator[list[int]]:
    """Have something else happen as a whole before one of the steps that are taken in a store."""
    count = [0]

    def stepped(original: Any) -> Any:
        def wrapped(storage: LocalStorage, *arguments: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] == step + 1:
                work()
            return original(storage, *arguments, **named)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(LocalStorage, name, stepped(getattr(LocalStorage, name)))
        yield count


def outcome(work: Callable[[], object]) -> object:
    """What a run returns, or the error that it fails with."""
    try:
        return work()
    except DeltaError as error:
        return error


def assert_one_at_most(place: Path, copied: object, reason: object) -> None:
    """A copy that was reported is there, and whatever isn't there was deleted by the deletion."""
    if copied is None:
        assert reason is not None
        assert not (place / DELETING).exists()
        marker = read_marker(LocalStorage(str(place)))
        assert marker is not None
        assert marker.committed_version == 1
        assert not marker.has_expired(now_ms())
        assert Peer(place).version() == 1
        assert Peer(place).to_pyarrow_table().num_rows == 1
    else:
        assert isinstance(copied, DeltaError)


def test_a_copy_that_is_made_while_another_one_is_deleted(lake: Path) -> None:
    table = DeltaTable(str(lake / "sales"))
    source, seen = CopySource(table, table.snapshot()), set()
    for step in range(200):
        place, copied = delta_copy(lake, f"old{step}", expires=LONG_AGO), ["never"]

        def work(place: Path = place, copied: list[Any] = copied) -> None:
            copied[0] = outcome(lambda: copy_to(place, source))

        with meanwhile(step, work) as count:
            reason = outcome(lambda place=place: delete(place))
        if count[0] <= step:
            break
        assert_one_at_most(place, copied[0], reason)
        seen.add((copied[0] is None, reason is None))
    # The copy comes first, or the deletion.
    assert seen == {(True, False), (False, True)}


def test_a_deletion_while_a_copy_is_made(lake: Path) -> None:
    table = DeltaTable(str(lake / "sales"))
    source, seen = CopySource(table, table.snapshot()), set()
    for step in range(200):
        place, reasons = delta_copy(lake, f"old{step}", expires=LONG_AGO), ["never"]

        def work(place: Path = place, reasons: list[Any] = reasons) -> None:
            reasons[0] = outcome(lambda: delete(place))

        with meanwhile(step, work) as count:
            copied = outcome(lambda place=place: copy_to(place, source))
        if count[0] <= step:
            break
        assert_one_at_most(place, copied, reasons[0])
        seen.add((copied is None, reasons[0] is None))
    assert seen == {(True, False), (False, True)}


def test_two_deletions_at_once(lake: Path) -> None:
    """One of them deletes, and the other one leaves it to it."""
    for step in range(200):
        place = delta_copy(lake, f"old{step}", expires=LONG_AGO)
        marker = read_marker(LocalStorage(str(place)))
        assert marker is not None

        def work(place: Path = place, marker: Any = marker) -> object:
            return outcome(lambda: delete_copy(DeltaTable(str(place)), marker))

        with meanwhile(step, work) as count:
            work()
        if count[0] <= step:
            break
        assert not place.exists() or not contents(place), step
    assert step > 5


def killed(place: Path, *, decided: bool = True) -> DeletionList:
    """Have a deletion begin, an hour ago."""
    storage = LocalStorage(str(place))
    marker = read_marker(storage)
    assert marker is not None
    files = tuple(info for info in storage.walk("") if info.path != MARKER)
    deletion = DeletionList(DELETION, now_ms() - LEASE_MS, decided, marker, files)
    storage.create(DELETING, deletion.to_json())
    return deletion


@pytest.mark.parametrize("kind", [files_copy, delta_copy])
def test_what_has_come_since_stays(lake: Path, kind: Any) -> None:
    """A deletion is killed; then somebody uses the place."""
    for number, name in enumerate(("thesis.docx", f"{RUN}/mine.parquet", "part-mine.parquet")):
        place = kind(lake, f"old{number}", expires=LONG_AGO)
        killed(place)
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
        before = contents(place)
        reason = delete(place)
        assert reason is not None
        assert f"now it holds {name}, which weren't there then" in reason
        (deletion := place / DELETING).unlink()
        assert contents(place) == {k: v for k, v in before.items() if k != str(deletion)}
        (place / name).unlink()
        killed(place)
        assert delete(place) is None
        assert not place.exists()


def test_a_table_that_has_come_since_stays(lake: Path) -> None:
    """Its log has names that the old one had."""
    place = delta_copy(lake, "old", expires=LONG_AGO)
    killed(place)
    for file in (place / "_delta_log").iterdir():
        file.unlink()
    write_deltalake(place, pa.table({"id": pa.array([], pa.int64())}))
    (place / RUN).rename(place.parent / "taken")
    before = {name: content for name, content in contents(place).items() if DELETING not in name}
    reason = delete(place)
    assert reason is not None
    assert f"_delta_log/{0:020}.json" in reason
    assert before.items() <= contents(place).items()


def test_what_a_killed_run_has_left_unfinished_goes_too(lake: Path) -> None:
    place = delta_copy(lake, "old", expires=LONG_AGO)
    unfinished = "00000000-0000-0000-0000-000000000000.tmp"
    (place / f".{MARKER}.{unfinished}").write_text("{")
    killed(place)
    (place / f".{DELETING}.{unfinished}").write_text("{")
    assert delete(place) is None
    assert not place.exists()


def test_a_place_that_changes_while_it_is_looked_at_stays(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def comes(storage: Any, deletion: DeletionList) -> bool:
        storage.create("part-of-mine.parquet", b"mine")
        return create_list(storage, deletion)

    create_list = copy_deletion.create_list
    monkeypatch.setattr(copy_deletion, "create_list", comes)
    place = files_copy(lake, "old", expires=LONG_AGO)
    before = contents(place)
    assert delete(place) == "it has changed meanwhile"
    assert contents(place) == {**before, str(place / "part-of-mine.parquet"): b"mine"}


def test_a_copy_whose_marker_changes_meanwhile_stays(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the marker: it is kept for longer."""

    def comes(storage: Any, deletion: DeletionList) -> bool:
        write_marker(storage, replace(deletion.marker, expires_at_ms=NEVER))
        return create_list(storage, deletion)

    create_list = copy_deletion.create_list
    monkeypatch.setattr(copy_deletion, "create_list", comes)
    place = delta_copy(lake, "old", expires=LONG_AGO)
    assert delete(place) == "it has changed meanwhile"
    assert not (place / DELETING).exists()
    assert Peer(place).to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize("look", [2, 3])
def test_a_commit_between_listing_and_the_look_at_the_table(
    lake: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """At the second look, and at the one behind the decision."""
    place, looks = delta_copy(lake, "old", expires=LONG_AGO), []
    why_table_kept = copy_deletion._reason_to_keep_table

    def slow(*arguments: Any, **options: Any) -> str | None:
        looks.append(1)
        if len(looks) == look:
            write_deltalake(place, pa.table({"id": [2]}), mode="append")
        return why_table_kept(*arguments, **options)

    monkeypatch.setattr(copy_deletion, "_reason_to_keep_table", slow)
    assert delete(place) == "it has changed meanwhile"
    assert not (place / DELETING).exists()
    assert Peer(place).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_stands_still_leaves_the_deletion_to_the_one_that_took_over(
    lake: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """Be it that the place is as it was, or that files are gone already."""
    place, look_again = files_copy(lake, "old", expires=LONG_AGO), copy_deletion._look_again
    storage, theirs = LocalStorage(str(place)), []

    def slow(table: DeltaTable, deletion: DeletionList) -> str | None:
        theirs.append(replace(deletion.take_over(now_ms=now_ms()), decided=True))
        reason = None if changed else look_again(table, deletion)
        write_list(storage, theirs[0])
        if changed:
            (place / "part-00000-x.parquet").unlink()
            reason = look_again(table, deletion)
        return reason

    monkeypatch.setattr(copy_deletion, "_look_again", slow)
    assert delete(place) == (
        "it has changed meanwhile" if changed else "another run has begun to delete it"
    )
    assert read_list(storage) == theirs[0]


def test_a_watch_sees_a_deletion_behind_which_another_copy_was_made(lake: Path) -> None:
    place = delta_copy(lake, "old", expires=LONG_AGO)
    storage = LocalStorage(str(place))
    marker = read_marker(storage)
    assert marker is not None
    watch = CopyWatch(CopyRequest(str(lake / "sales"), 1, str(place), "delta"), storage)
    write_marker(storage, replace(marker, committed_version=7))
    assert watch.check() == replace(marker, committed_version=7)
    write_marker(storage, replace(marker, target_id="another"))
    with pytest.raises(CopyBeingDeletedError, match="has been deleted in the meantime"):
        watch.check()


def test_a_list_is_read_as_it_was_written(lake: Path) -> None:
    place = files_copy(lake, "old", expires=LONG_AGO)
    (place / 'part-\n é "').write_text("rows")
    deletion = killed(place)
    assert read_list(LocalStorage(str(place))) == deletion


def test_a_run_whose_deletion_another_one_has_taken_over_stops(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still for an hour; who knows what has come to the place since."""
    place = files_copy(lake, "old", expires=LONG_AGO)
    storage = LocalStorage(str(place))
    decide = copy_deletion.write_list

    def stands_still(mine: Any, deletion: DeletionList) -> None:
        decide(mine, deletion)
        decide(mine, deletion.take_over(now_ms=now_ms()))

    monkeypatch.setattr(copy_deletion, "write_list", stands_still)
    before = contents(place)
    with pytest.raises(StorageError, match="another run has taken its deletion over"):
        delete(place)
    assert before.items() <= contents(place).items()
    begun = read_list(storage)
    assert begun is not None
    assert begun.decided


def test_a_deletion_reports_the_files_that_it_deletes(lake: Path) -> None:
    place = delta_copy(lake, "old", expires=LONG_AGO)
    heard: list[str] = []
    with listen_to_progress(lambda report: heard.append(str(report))):
        assert delete(place) is None
    last = re.fullmatch(r"deleted (\d+) of (\d+) files", heard[-1])
    assert last is not None
    assert last[1] == last[2] != "0"
    assert not place.exists()
