"""Checkpoints that hold something twice: never believed, and never passed on to the next checkpoint."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.checkpoint.distinct_files import each_file_once
from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.replay.repeated_keys import RepeatedKeys
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    commit_file,
    commits,
    file_rows,
    lines,
    parquet,
    small_rows,
    state_of,
    states,
)

V2 = {"v2Checkpoint"}
TXN = {"txn": {"appId": "app", "version": 7}}
DOMAIN = {"domainMetadata": {"domain": "d", "configuration": "new", "removed": False}}
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
VECTOR |= {"sizeInBytes": 40, "cardinality": 6}
HISTORY: list[list[Action]] = [
    [protocol(V2), metadata(configuration={"right": "yes"}), add("a"), add("b"), add("c")],
    [
        TXN,
        DOMAIN,
        add("d"),
        add("b", deletionVector=VECTOR),
        remove("a", deletionTimestamp=FAR_FUTURE_MS),
    ],
    [add("e")],
]
AT = 1
STATE = states(HISTORY)[AT]
STEM = f"_delta_log/{AT:020}.checkpoint"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"

OTHER = {"minReaderVersion": 1, "minWriterVersion": 1}
SMALL: dict[str, Action] = {
    "protocol": {"protocol": OTHER},
    "the same protocol": protocol(V2),
    "metaData": metadata(configuration={"right": "no"}),
    "txn": {"txn": {"appId": "app", "version": 99}},
    "domainMetadata": {"domainMetadata": {"domain": "d", "configuration": "old", "removed": False}},
}
FILES: dict[str, Action] = {
    "an add": add("d"),
    "an add with other fields": add("d", size=77),
    "an add with its vector": add("b", deletionVector=VECTOR),
}


def classic(rows: list[Action]) -> Files:
    return {f"{STEM}.parquet": parquet(rows)}


def parts(rows: list[Action]) -> Files:
    """Each part is right for itself."""
    halves = rows[::2], rows[1::2]
    if sum("protocol" in row for row in halves[0]) > 1 or len(rows) % 2:
        halves = rows[:-1], rows[-1:]
    return {
        f"{STEM}.{n:010}.{2:010}.parquet": parquet(half) for n, half in enumerate(halves, start=1)
    }


def inline(rows: list[Action]) -> Files:
    top = [{"checkpointMetadata": {"version": AT}}, *rows]
    return {f"{STEM}.{UUID}.parquet": parquet(top)}


def in_lines(rows: list[Action]) -> Files:
    top = [{"checkpointMetadata": {"version": AT}}, *rows]
    return {f"{STEM}.{UUID}.json": lines(top)}


def sidecars(rows: list[Action]) -> Files:
    """Files in two sidecars, the last one alone in the second."""
    small = [row for row in rows if not {"add", "remove"} & row.keys()]
    files = [row for row in rows if {"add", "remove"} & row.keys()]
    top: list[Action] = [{"checkpointMetadata": {"version": AT}}, *small]
    found: Files = {}
    for number, part in enumerate((files[:-1], files[-1:])):
        name = f"{number}.parquet"
        content = parquet(part, kinds=("add", "remove"))
        found[f"_delta_log/_sidecars/{name}"] = content
        top.append({"sidecar": {"path": name, "sizeInBytes": len(content), "modificationTime": 1}})
    return {**found, f"{STEM}.{UUID}.parquet": parquet(top)}


FORMS: dict[str, Callable[[list[Action]], Files]] = {
    "classic": classic,
    "parts": parts,
    "inline": inline,
    "lines": in_lines,
    "sidecars": sidecars,
}


def rows_with(more: Action) -> list[Action]:
    return [*small_rows(STATE), *file_rows(STATE.visible()), more]


def table_with(form: str, more: Action) -> MemoryTable:
    return MemoryTable({**commits(HISTORY), **FORMS[form](rows_with(more))})


def without_commits(table: MemoryTable) -> None:
    table.storage.delete([commit_file(0), commit_file(1)])


TWICE = {**SMALL, **FILES}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", TWICE)
def test_a_checkpoint_that_holds_something_twice_is_passed_over(form: str, more: str) -> None:
    warning = r"can't be used \(.* (twice|more than one)"
    with table_with(form, TWICE[more]) as table, pytest.warns(DeltaWarning, match=warning):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("more", ["metaData", "txn", "an add", "an add with its vector"])
def test_the_next_checkpoint_does_not_make_it_permanent(form: str, more: str, policy: Any) -> None:
    with table_with(form, TWICE[more]) as table:
        with pytest.warns(DeltaWarning, match="can't be used"):
            assert table.delta().checkpoint(policy=policy).written
        # All that is left are the new checkpoint and the commit of its version.
        table.storage.delete([path for path in table.files() if f"{AT:020}.checkpoint" in path])
        without_commits(table)
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", TWICE)
def test_where_nothing_else_is_left_it_is_refused(form: str, more: str) -> None:
    with table_with(form, TWICE[more]) as table:
        without_commits(table)
        before = table.files()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeltaWarning)
            with pytest.raises(CorruptLogError):
                table.delta().snapshot().files()
            for policy in ("classic", "v2"):
                with pytest.raises(CorruptLogError):
                    table.delta().checkpoint(policy=policy)
        assert table.files() == before


@pytest.mark.parametrize("commits_left", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", TWICE)
def test_the_check_says_so(form: str, more: str, commits_left: bool) -> None:
    """Also where there are no older commits to compare with."""
    with table_with(form, TWICE[more]) as table:
        if not commits_left:
            without_commits(table)
        report = table.delta().check(depth="log")
        [found] = [each for each in report.findings if each.code == "checkpoint-damaged"]
        assert found.severity == "error"
        assert "twice" in found.message or "more than one" in found.message


@pytest.mark.parametrize("form", FORMS)
def test_a_tombstone_held_twice_stops_no_reader_and_no_vacuum(form: str) -> None:
    """It changes no answer; but the check reports it, and no checkpoint is made from it."""
    again = remove("a", deletionTimestamp=FAR_FUTURE_MS)
    with table_with(form, again) as table:
        without_commits(table)
        delta = table.delta()
        assert set(delta.snapshot().tombstones()["path"].to_pylist()) == {"a"}
        live = {path for path, _ in states(HISTORY)[-1].files}
        assert set(delta.snapshot().files()["path"].to_pylist()) == live
        assert delta.vacuum().num_deleted == 0
        found = [each.code for each in delta.check(depth="log").findings]
        assert "checkpoint-damaged" in found
        with (
            pytest.raises(CorruptLogError, match="nothing here brings them back"),
            pytest.warns(DeltaWarning, match="twice"),
        ):
            delta.checkpoint()


# Files of a table: which look tells


def base_of(rows: list[Action]) -> tuple[MemoryTable, CheckpointReader]:
    table = MemoryTable(classic(rows))
    [checkpoint] = list_log(table.storage).checkpoints
    return table, open_checkpoint(table.storage, checkpoint, table=table.uri)


def tables(*names: list[str]) -> list[pa.Table]:
    vector = pa.nulls(1, pa.struct([("storageType", pa.string())]))
    return [
        pa.table({"path": paths, "deletionVector": vector.take(pa.array([0] * len(paths)))})
        for paths in names
    ]


def test_a_row_that_comes_right_after_itself_ends_the_reading() -> None:
    """So a file that repeats one a million times isn't decoded to its end."""
    table, reader = base_of([*small_rows(STATE), *[add("a")] * 8])
    handed: list[int] = []

    def endless() -> Any:
        for rows in tables(["a"] * 4, ["b"]):
            handed.append(rows.num_rows)
            yield rows

    with table, pytest.raises(CorruptLogError, match="'a' twice"):
        list(each_file_once(reader, endless(), table=table.uri))
    assert handed == [4]


@pytest.mark.parametrize("expected", [4, 5, 6, None])
def test_many_rows_are_counted_where_it_is_known_how_many_there_are(
    expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rows, one of them twice: a checksum that counts five agrees, and keys aren't compared."""
    monkeypatch.setattr("airflow_delta.engine.checkpoint.distinct_files._FEW", 1)
    names = ["a", "b", "c", "d", "b"]
    table, reader = base_of([*small_rows(STATE), *(add(name) for name in names)])
    asked: list[None] = []

    def count() -> int | None:
        asked.append(None)
        return expected

    with table:
        rows = each_file_once(reader, tables(names[:3], names[3:]), table=table.uri, count=count)
        if expected == 5:
            assert sum(some.num_rows for some in rows) == 5
        else:
            with pytest.raises(CorruptLogError, match="'b' twice"):
                list(rows)
    assert len(asked) == 1


def test_a_checksum_that_counts_wrong_costs_a_look_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("airflow_delta.engine.checkpoint.distinct_files._FEW", 1)
    files = {**commits(HISTORY), **classic(rows_with({"txn": {"appId": "x", "version": 1}}))}
    lie = {"tableSizeBytes": 9, "numFiles": 99, "numMetadata": 1, "numProtocol": 1}
    told = {**lie, "metadata": small_rows(STATE)[1]["metaData"], **small_rows(STATE)[0]}
    files[f"_delta_log/{AT:020}.crc"] = json.dumps(told).encode()
    with MemoryTable(files) as table:
        found = table.delta().snapshot().files()["path"].to_pylist()
        assert sorted(found) == sorted(path for path, _ in states(HISTORY)[-1].files)


def test_keys_that_are_alike_only_by_their_hashes_are_all_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RepeatedKeys, "any", lambda _self: True)
    monkeypatch.setattr(RepeatedKeys, "add", lambda _self, keys: len(keys) > 1)
    rows = rows_with({"txn": {"appId": "x", "version": 1}})
    with MemoryTable({**commits(HISTORY), **classic(rows)}) as table, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.delta().snapshot().num_files == len(states(HISTORY)[-1].files)
