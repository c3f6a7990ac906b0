"""The tail of a segment: what is read, how often, and that both ways of reading agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, ObjectNotFoundError
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot import segment_commits as tail_module
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from airflow_delta.engine.storage.local import LocalStorage
from tests.log_builder import add, commit_path, remove, write_table

TXN = {"txn": {"appId": "app", "version": 7}}


class CountingStorage(LocalStorage):
    """Remembers what was read."""

    def read_many(self, paths: list[str]) -> list[bytes | None]:
        READ.extend(paths)
        return super().read_many(paths)


READ: list[str] = []


def tail_of(root: Path) -> SegmentCommits:
    READ.clear()
    storage = CountingStorage(str(root))
    return SegmentCommits(storage, load_segment(storage).plan(), table=str(root))


def paths(tail: SegmentCommits, columns: tuple[str, ...] | None = ()) -> list[str]:
    return tail.files(columns).adds["path"].to_pylist()


@pytest.fixture(params=["kept", "not kept"])
def readings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often commits are read for non-file actions and files together."""
    if request.param == "kept":
        return 1
    monkeypatch.setattr(tail_module, "_KEPT_BYTES", 0)
    return 2


def test_non_file_actions_and_files_cost_one_reading_of_a_short_tail(
    tmp_path: Path, readings: int
) -> None:
    write_table(tmp_path, [add("a"), add("b")], [remove("a"), TXN], [add("c")])
    tail = tail_of(tmp_path)
    assert [(a.version, a.kind) for a in tail.non_file_actions()] == [
        (0, "protocol"), (0, "metaData"), (1, "txn"),
    ]  # fmt: skip
    assert paths(tail) == ["b", "c"]
    assert paths(tail, ("path", "size")) == ["b", "c"]
    assert (len(READ), len(set(READ))) == (3 * readings, 3)


@pytest.mark.usefixtures("readings")
def test_non_file_actions_come_with_the_files(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [TXN])
    tail = tail_of(tmp_path)
    assert tail.files(None).adds["stats"].to_pylist() == [None]
    assert [a.value for a in tail.non_file_actions() if a.kind == "txn"] == [TXN["txn"]]
    assert len(READ) == 2


def test_all_columns_of_a_very_short_tail_are_read_at_once(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a", stats='{"numRecords":1}')])
    tail = tail_of(tmp_path)
    tail.files(("path",))
    assert tail.files(("stats",)).adds["stats"].to_pylist() == ['{"numRecords":1}']
    assert tail.files(None).adds["size"].to_pylist() == [1]
    assert len(READ) == 1


def test_what_is_wrong_in_a_column_is_an_error_once_it_is_wanted(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a", tags=7)])
    tail = tail_of(tmp_path)
    assert tail.files(("path",)).adds["path"].to_pylist() == ["a"]
    with pytest.raises(CorruptLogError, match="tags"):
        tail.files(("tags",))


def test_further_columns_of_a_longer_one_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_WHOLE_BYTES", 0)
    write_table(tmp_path, [add("a", stats='{"numRecords":1}')])
    tail = tail_of(tmp_path)
    assert "stats" not in tail.files(("size",)).adds.column_names
    assert tail.files(("stats",)).adds["stats"].to_pylist() == ['{"numRecords":1}']
    assert tail.files(("size", "stats")).adds["size"].to_pylist() == [1]
    assert len(READ) == 2


def test_a_broken_line_of_a_file_is_found_with_the_files(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [])
    commit_path(tmp_path, 1).write_text('{"add":{"path":1}}\n')
    tail = tail_of(tmp_path)
    assert len(tail.non_file_actions()) == 2
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json, line 1"):
        tail.files(())


def test_a_commit_that_vanished_is_named(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    tail = tail_of(tmp_path)
    commit_path(tmp_path, 1).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"00000000000000000001\.json vanished"):
        tail.non_file_actions()


def test_damage_is_told_of_the_file_that_was_read(tmp_path: Path) -> None:
    """A compaction is read as the version it ends at, whose commit isn't read at all."""
    write_table(tmp_path, [add("a")], [add("b")])
    name = f"{0:020}.{1:020}.compacted.json"
    (tmp_path / "_delta_log" / name).write_text('{"add":{"path":"a"}}\n{"txn":7}\n{"add":{}}\n')
    tail = tail_of(tmp_path)
    with pytest.raises(CorruptLogError, match=rf"/{name}, line 2") as caught:
        tail.non_file_actions()
    assert caught.value.path == f"_delta_log/{name}"
    with pytest.raises(CorruptLogError, match=rf"/{name}, line"):
        tail.files(())
    assert tail.name_of(1) == f"_delta_log/{name}"
    assert [f"_delta_log/{name}"] * len(READ) == READ


def test_a_small_action_that_is_none_is_told_of_its_compaction(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    name = f"{0:020}.{1:020}.compacted.json"
    (tmp_path / "_delta_log" / name).write_text('{"txn":{"appId":"app"}}\n')
    with pytest.warns(DeltaWarning, match=rf"{name}: txn\.version"):
        DeltaTable(str(tmp_path)).snapshot()
