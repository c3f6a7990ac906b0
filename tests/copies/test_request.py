from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_delta.copies.formats import check_format
from airflow_delta.copies.marker import CopyMarker, read_marker, write_marker
from airflow_delta.copies.request import (
    CopyRequest,
    check_delta_target,
    check_location,
    load_earlier_copy,
    mark_delta_copy,
)
from airflow_delta.copies.source import CopySource, copy_app_id
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    StructField,
    StructType,
)
from airflow_delta.engine.storage.local import LocalStorage


def struct(*, nullable: bool = True, **columns: DataType) -> StructType:
    return StructType(
        tuple(
            StructField(name, data_type, nullable=nullable) for name, data_type in columns.items()
        )
    )


def create(path: Path, schema: StructType, *partition_by: str) -> DeltaTable:
    return DeltaTable.create(str(path), schema, partition_by=partition_by)


def commit(table: DeltaTable, **transactions: int) -> int:
    change = table.transaction("WRITE")
    for app_id, version in transactions.items():
        change.set_transaction(app_id, version)
    return change.commit().version


@pytest.fixture
def source(tmp_path: Path) -> CopySource:
    item = ArrayType(struct(a=INTEGER, nullable=False), contains_null=False)
    columns = struct(id=LONG, items=item, p=STRING, nullable=False)
    table = create(tmp_path / "source", columns, "p")
    return CopySource(table, table.snapshot())


def refused(source: CopySource, target: DeltaTable, message: str, **more: bool) -> None:
    request = CopyRequest(source.table.uri, source.snapshot.version, target.uri, "delta", **more)
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        check_delta_target(request, source, target.snapshot())
    assert "empty it, or choose another" in str(caught.value)
    assert caught.value.target == target.uri


def copy_of(
    source: CopySource,
    path: Path,
    schema: StructType,
    *partition_by: str,
    version: int | None = None,
) -> DeltaTable:
    table = create(path, schema, *partition_by)
    held = source.snapshot.version if version is None else version
    commit(table, **{copy_app_id(source.id): held})
    return table


ITEM = ArrayType(struct(a=INTEGER))
FITTING = {"id": LONG, "items": ITEM, "p": STRING}


def test_an_earlier_copy_may_be_replaced_whatever_its_columns(
    source: CopySource, tmp_path: Path
) -> None:
    target = copy_of(source, tmp_path / "copy", struct(p=STRING, other=ITEM))
    request = CopyRequest(source.table.uri, 0, target.uri, "delta")
    check_delta_target(request, source, target.snapshot())


def test_what_is_no_copy_or_a_newer_one_is_refused(source: CopySource, tmp_path: Path) -> None:
    refused(source, create(tmp_path / "other", struct(**FITTING)), "holds no copy of this table")
    newer = copy_of(source, tmp_path / "newer", struct(**FITTING), "p", version=1)
    refused(source, newer, "a copy of version 1, which is newer than version 0")
    request = CopyRequest(source.table.uri, 0, newer.uri, "delta", replace_newer=True)
    check_delta_target(request, source, newer.snapshot())


def test_a_table_that_is_replaced_goes_on_with_its_copies(
    source: CopySource, tmp_path: Path
) -> None:
    """``REPLACE TABLE`` gives it another id; one that is made anew has another at each version."""
    target = copy_of(source, tmp_path / "copy", struct(**FITTING), "p")
    (first,) = (tmp_path / "source" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    metadata["metaData"]["id"] = "another"
    first.with_name(f"{1:020}.json").write_text(json.dumps(metadata))
    table = DeltaTable(source.table.uri)
    replaced = CopySource(table, table.snapshot(1))
    request = CopyRequest(table.uri, 1, target.uri, "delta")
    assert (replaced.id, replaced.version_at(target.snapshot())) == ("another", 0)
    check_delta_target(request, replaced, target.snapshot())
    first.write_text("\n".join(map(json.dumps, actions)))
    made_anew = DeltaTable(table.uri)
    refused(CopySource(made_anew, made_anew.snapshot(1)), target, "holds no copy of this table")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_copy_of_which_nobody_can_tell_any_more_whose_it_is(
    source: CopySource, tmp_path: Path, damaged: bool
) -> None:
    """The source was replaced by another definition, and cleanup, or damage, has taken the version."""
    target = copy_of(source, tmp_path / "copy", struct(**FITTING), "p")
    log = tmp_path / "source" / "_delta_log"
    first = log / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    metadata["metaData"]["id"] = "another"
    (log / f"{1:020}.json").write_text(json.dumps(metadata))
    DeltaTable(source.table.uri).checkpoint()
    if damaged:
        first.write_text("{")
    else:
        first.unlink()
    table = DeltaTable(source.table.uri)
    replaced = CopySource(table, table.snapshot())
    assert replaced.had_id(source.id, 0) is None
    assert not replaced.had_id(source.id, 0)
    assert replaced.had_id("another", 0)
    assert replaced.had_id(source.id, 2) is False
    message = r"nobody can know any more .*: the copy is of a version 0, .* version 0 of this table is gone"
    refused(replaced, target, message)
    place = LocalStorage(str(tmp_path / "files"))
    write_marker(place, CopyMarker(source.table.uri, source.id, 0, expires_at_ms=1))
    request = CopyRequest(source.table.uri, 1, place.root)
    with pytest.raises(InvalidArgumentError, match=message):
        check_location(request, replaced, place)


def test_marks_of_a_copy_never_contradict_one_another(source: CopySource, tmp_path: Path) -> None:
    """A copy goes on through two replacements of its table, and back, and to another version."""
    log = tmp_path / "source" / "_delta_log"
    first = (log / f"{0:020}.json").read_text().splitlines()
    (metadata,) = (json.loads(line) for line in first if line.startswith('{"metaData"'))
    for version, table_id in ((1, "b"), (2, "c")):
        metadata["metaData"]["id"] = table_id
        (log / f"{version:020}.json").write_text(json.dumps(metadata))
    table = DeltaTable(source.table.uri)
    target = create(tmp_path / "copy", struct(**FITTING), "p")
    for version in (0, 1, 2, 0, 1):
        copied, held = CopySource(table, table.snapshot(version)), target.snapshot()
        request = CopyRequest(table.uri, version, target.uri, "delta", replace_newer=version == 0)
        if held.version > 0:
            check_delta_target(request, copied, held)
        marked = target.snapshot(commit(target, **dict.fromkeys(copied.app_ids(held), version)))
        assert copied.version_at(marked) == version
        # Whatever version is the next, and whichever id it has.
        for other in range(3):
            assert CopySource(table, table.snapshot(other)).version_at(marked) == version


def test_a_commit_is_the_copy_asked_for_only_by_its_mark(
    source: CopySource, tmp_path: Path
) -> None:
    target = create(tmp_path / "copy", struct(**FITTING), "p")
    mark = copy_app_id(source.id)
    without = commit(target, task=5)
    other_table = commit(target, **{"task": 6, copy_app_id("another"): 0})
    other_version = commit(target, **{"task": 7, mark: 3})
    right = commit(target, **{"task": 8, mark: 0})
    request = CopyRequest(source.table.uri, 0, target.uri, "delta")
    for wrong in (without, other_table, other_version):
        assert load_earlier_copy(request, source, target, wrong) is None
    found = load_earlier_copy(request, source, target, right)
    assert found is not None
    assert found.version == right


def test_a_commit_that_is_gone_proves_nothing(source: CopySource, tmp_path: Path) -> None:
    target = create(tmp_path / "copy", struct(**FITTING), "p")
    mark = copy_app_id(source.id)
    copied = commit(target, **{"task": 5, mark: 0})
    commit(target, other=1)
    target.checkpoint()
    log = tmp_path / "copy" / "_delta_log"
    request = CopyRequest(source.table.uri, 0, target.uri, "delta")
    damaged = log / f"{copied:020}.json"
    whole = damaged.read_text()
    damaged.write_text("{")
    assert load_earlier_copy(request, source, DeltaTable(target.uri), copied) is None
    damaged.write_text(whole)
    (log / f"{0:020}.json").unlink()
    assert load_earlier_copy(request, source, DeltaTable(target.uri), copied) is None


def test_the_marker_that_is_there_says_nothing_of_another_table(
    source: CopySource, tmp_path: Path
) -> None:
    """Somebody has emptied the place by hand, but for the marker; versions begin anew."""
    target = copy_of(source, tmp_path / "copy", struct(**FITTING), "p").snapshot()
    request = CopyRequest(source.table.uri, 0, target.table, "delta", expire_after_ms=10**9)
    left = CopyMarker(
        *(source.table.uri, source.id, 0, target.table, "delta"),
        expires_at_ms=1,
        target_id="of the table that was there",
        committed_version=target.version,
    )
    write_marker(target.storage, left)
    made = mark_delta_copy(request, source, target, left)
    assert made.expires_at_ms == target.timestamp_ms + 10**9
    assert read_marker(target.storage) == made
    # Nor does it make room for an older version.
    newer = copy_of(source, tmp_path / "newer", struct(**FITTING), "p", version=1)
    write_marker(newer.storage, left)
    refused(source, newer, "a copy of version 1, which is newer than version 0")


def test_an_earlier_copy_expires_with_the_later_one(source: CopySource, tmp_path: Path) -> None:
    table = copy_of(source, tmp_path / "copy", struct(**FITTING), "p")
    first = table.snapshot()
    later = table.snapshot(commit(table, **{copy_app_id(source.id): 0}))
    forever = CopyRequest(source.table.uri, 0, table.uri, "delta")
    held = mark_delta_copy(replace(forever, expire_after_ms=5), source, later, None)
    assert held.expires_at_ms == later.timestamp_ms + 5
    assert mark_delta_copy(forever, source, first, held).expires_at_ms == held.expires_at_ms
    assert read_marker(first.storage) == held


def test_formats() -> None:
    check_format("delta")
    check_format("parquet")
    with pytest.raises(InvalidArgumentError, match="unknown format 'orc'"):
        check_format("orc")


def test_the_mark_is_what_peers_see(source: CopySource, tmp_path: Path) -> None:
    copy_of(source, tmp_path / "copy", struct(**FITTING), "p", version=4)
    last = (tmp_path / "copy" / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (txn,) = (json.loads(line)["txn"] for line in last if line.startswith('{"txn"'))
    assert (txn["appId"], txn["version"]) == (f"airflow-delta:copy-of:{source.id}", 4)
