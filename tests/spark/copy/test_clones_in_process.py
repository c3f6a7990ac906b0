"""Clones whose files this process copies, not Spark: with deletions, kills and replaced sources in between.

A clone and the deletion of an expired one are stopped between any two of their steps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.copies import deletion_list
from airflow_delta.copies.deletion import delete_copy
from airflow_delta.copies.deletion_list import DELETING, read_list, write_list
from airflow_delta.copies.lease import CopyBeingDeletedError
from airflow_delta.copies.marker import MARKER, read_marker
from airflow_delta.copies.request import CopyRequest, CopyResult
from airflow_delta.copies.source import CopySource
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError, InvalidArgumentError
from airflow_delta.engine.log.files import LOG_DIRECTORY, commit_path
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.copy import clones
from airflow_delta.spark.copy.clone_files import FileCopy
from airflow_delta.spark.copy.clones import Clone
from airflow_delta.spark.copy.file_copying import copy_file
from tests.conftest import write_sales
from tests.spark.copy.made_copies import contents

STEPS = ("read", "list", "walk", "create", "replace", "delete", "writer")
SPARK: Any = SimpleNamespace(sparkContext=None)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the table ``sales``, and ``copy``, a clone of its version 0 that has expired."""

    def copied(
        _: object, copies: Sequence[FileCopy], *, source: StorageAddress, target: StorageAddress
    ) -> None:
        for copy in copies:
            copy_file(copy, source.access(), target.open())

    monkeypatch.setattr(clones, "copy_files", copied)
    write_sales(tmp_path / "sales", version=2)
    clone(tmp_path, 0, expire_after_ms=0)
    return tmp_path


def clone(lake: Path, version: int, **more: Any) -> CopyResult:
    table = DeltaTable(str(lake / "sales"))
    request = CopyRequest(table.uri, version, str(lake / "copy"), "delta", **more)
    return Clone(SPARK, request, CopySource(table, table.snapshot(version)), None).make()


def delete(lake: Path) -> str | None:
    table = DeltaTable(str(lake / "copy"))
    begun = read_list(table.storage)
    marker = read_marker(table.storage) or (begun and begun.marker)
    assert marker is not None
    return delete_copy(table, marker)


def outcome(work: Callable[[], object]) -> object:
    """What a run returns, or the error that it fails with."""
    try:
        return work()
    except DeltaError as error:
        return error


def log_of(place: Path) -> list[str]:
    return sorted(file.name for file in (place / LOG_DIRECTORY).glob("*.json"))


def rows(place: Path) -> int:
    return int(Peer(place).to_pyarrow_table().num_rows)


class Steps:
    """Has something happen before steps that are taken in a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[str, Any], object] | None = None
        for name in STEPS:
            monkeypatch.setattr(
                LocalStorage, name, self._stepped(name, getattr(LocalStorage, name))
            )

    def _stepped(self, name: str, original: Any) -> Any:
        def wrapped(storage: LocalStorage, *arguments: Any, **named: Any) -> Any:
            if self.before is not None:
                self.before(name, arguments[0])
            return original(storage, *arguments, **named)

        return wrapped

    def once(self, name: str, path: str, work: Callable[[], object], *, of: int = 1) -> None:
        """Do something, once, before the n-th step of a name at a path."""
        left = of

        def before(step: str, at: Any) -> None:
            nonlocal left
            left -= (step, at) == (name, path)
            if left == 0:
                self.before = None
                work()

        self.before = before


class HaltedClone:
    """A clone of version 1, which stops before its commit."""

    def __init__(self, lake: Path) -> None:
        self.result: object = None
        self._lake = lake
        self._there, self._go = Event(), Event()
        self._thread = Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        assert self._there.wait(60)

    def finish(self) -> None:
        self._go.set()
        self._thread.join(60)

    def before(self, name: str, path: Any) -> bool:
        """Stop here, if this is the clone and about to commit; return whether it is the clone."""
        mine = current_thread() is self._thread
        if mine and (name, path) == ("create", commit_path(1)):
            self._there.set()
            assert self._go.wait(60)
        return mine

    def _run(self) -> None:
        self.result = outcome(lambda: clone(self._lake, 1, expire_after_ms=10**9))


def test_a_commit_that_lands_at_any_step_of_a_deletion(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clone has looked before its commit; it goes on, to its end, when the deletion has begun."""
    expired, seen = lake.parent / f"{lake.name}-expired", set()
    shutil.copytree(lake / "copy", expired)
    steps = Steps(monkeypatch)
    for step in range(1, 100):
        shutil.rmtree(lake / "copy", ignore_errors=True)
        shutil.copytree(expired, lake / "copy")
        made, count = HaltedClone(lake), [0]

        def before(
            name: str, path: Any, made: Any = made, count: Any = count, step: int = step
        ) -> None:
            if not made.before(name, path):
                count[0] += 1
                if count[0] == step:
                    made.finish()

        steps.before = made.before
        made.start()
        steps.before = before
        reason = outcome(lambda: delete(lake))
        steps.before = None
        made.finish()
        place, log = lake / "copy", log_of(lake / "copy")
        if isinstance(made.result, CopyResult):
            assert reason is not None
            assert (rows(place), not (place / DELETING).exists()) == (20, True)
        else:
            # What it was, or with the commit that came in time to be seen; or nothing at all.
            assert isinstance(made.result, CopyBeingDeletedError)
            assert log in ([], [f"{0:020}.json"], [f"{0:020}.json", f"{1:020}.json"])
            assert not log or rows(place) == 10 * len(log)
        seen.add((isinstance(made.result, CopyResult), reason is None))
        # Whatever has happened: an hour later all is in order.
        with monkeypatch.context() as later:
            later.setattr(deletion_list, "LEASE_MS", 0)
            if (place / DELETING).exists():
                outcome(lambda: delete(lake))
        assert clone(lake, 2).num_rows == rows(place) == 30
        if count[0] < step:
            break
    assert seen == {(True, False), (False, True), (False, False)}
    assert step > 20


def test_a_commit_that_lands_on_the_table_of_a_later_copy_is_taken_back(lake: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        steps, made = Steps(patch), HaltedClone(lake)
        steps.before = made.before
        made.start()
        steps.before = None
        assert delete(lake) is None
        assert clone(lake, 2).committed_version == 0
        made.finish()
    assert isinstance(made.result, CopyBeingDeletedError)
    place = lake / "copy"
    assert (log_of(place), rows(place)) == ([f"{0:020}.json"], 30)
    live = {Path(uri) for uri in DeltaTable(str(place)).snapshot().file_uris()}
    assert set(place.rglob("*.parquet")) == live, "its files are deleted"


@pytest.mark.parametrize("decided", [True, False])
def test_a_commit_is_taken_back_where_the_deletion_is_decided(
    lake: Path, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    """Otherwise whoever decides it sees the commit, which is a version of a whole table."""
    place, steps = lake / "copy", Steps(monkeypatch)
    before = contents(place)
    steps.once("create", commit_path(1), lambda: killed(place, decided=decided))
    with pytest.raises(CopyBeingDeletedError):
        clone(lake, 1)
    assert rows(place) == (10 if decided else 20)
    (place / DELETING).unlink()
    assert (contents(place) == before) is decided
    assert clone(lake, 2).num_rows == rows(place) == 30


def test_a_commit_on_which_another_one_stands_is_not_taken_back(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with a version missing could be read by nobody."""
    place, steps = lake / "copy", Steps(monkeypatch)

    def others_go_on() -> None:
        killed(place)
        DeltaTable(str(place)).alter.set_properties({"somebody": "goes on"})

    steps.once("create", commit_path(1), lambda: steps.once("read", DELETING, others_go_on))
    with pytest.raises(CopyBeingDeletedError):
        clone(lake, 1)
    assert (log_of(place), rows(place)) == ([f"{v:020}.json" for v in range(3)], 20)


def killed(place: Path, *, decided: bool = True) -> None:
    """Have a deletion begin, and be decided, and go no further."""
    storage, marker = LocalStorage(str(place)), read_marker(LocalStorage(str(place)))
    assert marker is not None
    deletion = deletion_list.DeletionList.begin(marker, (), now_ms=0)
    write_list(storage, replace(deletion, decided=decided))


def test_a_retry_does_not_take_its_commit_for_a_copy_that_is_being_deleted(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, load_earlier_copy = lake / "copy", clones.load_earlier_copy
    made = clone(lake, 1, txn=("dag.task", 1))

    def finds(*arguments: Any) -> Any:
        killed(place)
        return load_earlier_copy(*arguments)

    assert clone(lake, 1, txn=("dag.task", 1)) == made
    monkeypatch.setattr(clones, "load_earlier_copy", finds)
    with pytest.raises(CopyBeingDeletedError, match="is being deleted there"):
        clone(lake, 1, txn=("dag.task", 1))


def test_what_a_clone_has_left_that_was_killed_at_its_commit_is_no_obstacle(lake: Path) -> None:
    """Whatever of its own: a place with anything else stays as it is."""
    place, unfinished = lake / "copy", "00000000-0000-0000-0000-000000000000.tmp"
    (place / MARKER).unlink()
    (place / commit_path(0)).rename(place / LOG_DIRECTORY / f".{0:020}.json.{unfinished}")
    for name in (f"{LOG_DIRECTORY}/.{0:020}.crc", f".{MARKER}"):
        (place / f"{name}.{unfinished}").write_text("{")
    (place / f"{LOG_DIRECTORY}/{0:020}.crc").unlink(missing_ok=True)
    strange = place / LOG_DIRECTORY / f".{0:020}.json.mine"
    strange.write_text("mine")
    with pytest.raises(
        InvalidArgumentError, match=r"json\.mine, which no earlier copy has written"
    ):
        clone(lake, 2)
    strange.unlink()
    assert clone(lake, 2).num_rows == rows(place) == 30


def test_a_clone_of_a_table_that_was_replaced_twice_and_back(lake: Path) -> None:
    """Its versions 0, 1 and 2 have an id each; whichever is copied, it is known what the copy holds."""
    log = lake / "sales" / LOG_DIRECTORY
    first = (log / f"{0:020}.json").read_text().splitlines()
    (metadata,) = (json.loads(line) for line in first if line.startswith('{"metaData"'))
    for version, table_id in ((1, "b"), (2, "c")):
        metadata["metaData"]["id"] = table_id
        with (log / f"{version:020}.json").open("a") as file:
            file.write("\n" + json.dumps(metadata) + "\n")
    for version in (1, 2, 0, 1):
        clone(lake, version, replace_newer=version == 0)
        assert rows(lake / "copy") == 10 * (version + 1)
        marks = DeltaTable(str(lake / "copy")).snapshot().transactions
        assert {mark.version for mark in marks.values()} == {version}
    assert len(marks) == 3
