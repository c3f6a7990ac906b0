from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.change_feeds.directories import MARKER, range_directory
from airflow_delta.change_feeds.progress import (
    FeedProgress,
    check_no_unrecorded_changes,
    check_source,
    directory_progress,
    is_new,
    load_progress,
    range_app_id,
    table_progress,
    target_progress,
    transaction_identifiers,
)
from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, InvalidArgumentError
from tests.log_builder import PROTOCOL, add, metadata, write_commit, write_table

REQUEST = FeedRequest("/t", 3, 7, "/c")
OF = "airflow-delta:changes-of:"
UNTIL = "airflow-delta:changes-until"


def txn(app_id: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": app_id, "version": version}}


def held(path: Path, *actions: dict[str, Any], **options: Any) -> DeltaTable:
    return DeltaTable(write_table(path, list(actions), **options))


@pytest.mark.parametrize(
    ("ranges", "new"),
    [
        ((), True),
        (((0, 2),), True),
        (((8, 9),), True),
        (((0, 2), (8, 9)), True),
        (((3, 7),), False),
        (((0, 9),), False),
    ],
)
def test_a_range_is_new_or_told(ranges: tuple[tuple[int, int], ...], new: bool) -> None:
    assert is_new(REQUEST, FeedProgress(ranges)) is new


@pytest.mark.parametrize(
    ("ranges", "there"),
    [
        (((0, 3),), "3 to 3"),
        (((7, 9),), "7 to 7"),
        (((5, 6),), "5 to 6"),
        (((0, 4), (6, 9)), "3 to 4 and 6 to 7"),
    ],
)
def test_a_range_of_which_a_part_is_told_is_refused(
    ranges: tuple[tuple[int, int], ...], there: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"has the changes of versions {there} already"):
        is_new(REQUEST, FeedProgress(ranges))


def test_what_an_earlier_release_has_told_is_not_guessed(tmp_path: Path) -> None:
    """Its targets say up to where they tell changes, and not from where on."""
    table = held(tmp_path, add("a"), txn(f"{OF}ours", 4))
    progress = table_progress(REQUEST, table.snapshot())
    assert progress.last == 4
    with pytest.raises(InvalidArgumentError, match="go on at version 5; or choose"):
        is_new(REQUEST, progress)
    later = FeedRequest("/t", 5, 7, "/c")
    assert is_new(later, progress)
    actions = [txn(*mark) for mark in transaction_identifiers(later, progress, "ours").items()]
    progress = table_progress(REQUEST, held(tmp_path / "2", add("a"), *actions).snapshot())
    assert (progress.ranges, progress.unknown_until) == (((5, 7),), 4)


def test_a_table_tells_the_ranges_that_its_commits_have_added(tmp_path: Path) -> None:
    """A commit after the other, as feeds make them: each keeps what the ones before it have said."""
    marks: dict[str, int] = {}
    steps = [
        ((4, 5), ((4, 5),)),
        ((9, 9), ((4, 5), (9, 9))),
        ((0, 2), ((0, 2), (4, 5), (9, 9))),
        ((6, 8), ((0, 2), (4, 9))),
        ((3, 3), ((0, 9),)),
        ((10, 12), ((0, 12),)),
    ]
    for number, ((start, end), expected) in enumerate(steps):
        before = held(tmp_path / f"{number}", add("a"), *(txn(*mark) for mark in marks.items()))
        progress = table_progress(REQUEST, before.snapshot())
        marks.update(transaction_identifiers(FeedRequest("/t", start, end, "/c"), progress, "ours"))
        after = held(tmp_path / f"{number}a", add("a"), *(txn(*mark) for mark in marks.items()))
        progress = target_progress(REQUEST, after)
        assert (progress.ranges, progress.last) == (expected, max(9 if number else 5, end))
    # Two ranges at a time meet in one of the identifiers, whatever their versions and ids.
    assert set(
        transaction_identifiers(FeedRequest("/t", 20, 20, "/c"), FeedProgress(), "other")
    ) & set(marks) == {UNTIL}
    assert target_progress(REQUEST, DeltaTable(str(tmp_path / "none"))) == FeedProgress()


def test_a_table_that_forgets_is_no_target(tmp_path: Path) -> None:
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    table = held(tmp_path, add("a"), configuration=forgets)
    with pytest.raises(InvalidArgumentError, match="unset the property; or choose"):
        table_progress(REQUEST, table.snapshot())


@pytest.mark.parametrize(("versions", "lost"), [((0, 2), False), ((2, 3), True), (None, True)])
def test_changes_that_a_table_tells_nothing_about_are_found_by_statistics(
    tmp_path: Path, versions: tuple[int, int] | None, lost: bool
) -> None:
    """As where its identifiers expired before the property was unset."""
    bounds = [{"_commit_version": version} for version in versions or ()]
    names = ("minValues", "maxValues")
    stats = json.dumps({"numRecords": 2, **dict(zip(names, bounds, strict=False))})
    column = {"name": "_commit_version", "type": "long", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [column]}
    table = held(tmp_path, add("a", stats=stats), schema=schema)
    check_no_unrecorded_changes(REQUEST, FeedProgress(((8, 8),)), table.snapshot())
    if not lost:
        check_no_unrecorded_changes(REQUEST, FeedProgress(), table.snapshot())
        return
    with pytest.raises(InvalidArgumentError, match="but a may have rows of these"):
        check_no_unrecorded_changes(REQUEST, FeedProgress(), table.snapshot())


def source(path: Path, *ids: str) -> DeltaTable:
    """A table with a version for each id that its metadata have."""
    for version, name in enumerate(ids):
        action = metadata()
        action["metaData"]["id"] = name
        write_commit(path, version, *([] if version else [PROTOCOL]), action)
    return DeltaTable(str(path))


def test_a_table_is_known_by_the_id_that_it_had(tmp_path: Path) -> None:
    replaced = source(tmp_path / "r", "a", "a", "b", "c")
    check_source(REQUEST, FeedProgress(ids={}), replaced)
    check_source(REQUEST, FeedProgress(ids={"a": 1}), replaced)
    check_source(REQUEST, FeedProgress(ids={"a": 1, "b": 2}), replaced)
    # A release before this one kept the newest id, also with versions that had another.
    check_source(REQUEST, FeedProgress(ids={"c": 1}), replaced)
    for other in ({"x": 1}, {"a": 1, "x": 2}, {"b": 9}):
        with pytest.raises(InvalidArgumentError, match="has the changes of another table"):
            check_source(REQUEST, FeedProgress(ids=other), replaced)


def test_a_table_whose_version_is_gone_is_not_guessed_to_be_the_same(tmp_path: Path) -> None:
    table = source(tmp_path, "a", "b", "b")
    table.checkpoint()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    check_source(REQUEST, FeedProgress(ids={"b": 1}), table)
    with pytest.raises(InvalidArgumentError, match="cleanup has deleted that version"):
        check_source(REQUEST, FeedProgress(ids={"a": 0}), DeltaTable(str(tmp_path)))


def made_range(target: Path, start: int, end: int, marker: object | None) -> None:
    folder = target / range_directory(start, end)
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"rows")
    if marker is not None:
        (folder / MARKER).write_text(json.dumps(marker))


def test_files_tell_by_the_markers_of_their_ranges(tmp_path: Path) -> None:
    storage = DeltaTable(str(tmp_path)).storage
    assert directory_progress(REQUEST, storage) == FeedProgress()
    made_range(tmp_path, 0, 2, {"table_id": "first"})
    made_range(tmp_path, 3, 3, {"table_id": "first"})
    made_range(tmp_path, 9, 10, {"table_id": "ours"})
    made_range(tmp_path, 11, 12, None)
    assert directory_progress(REQUEST, storage) == FeedProgress(((0, 3), (9, 10)), ids={"ours": 10})


@pytest.mark.parametrize("marker", [[], {"table_id": 1}])
def test_a_marker_that_says_nothing_is_refused(tmp_path: Path, marker: object) -> None:
    made_range(tmp_path, 0, 2, marker)
    with pytest.raises(InvalidArgumentError, match="doesn't contain the id of the table"):
        directory_progress(REQUEST, DeltaTable(str(tmp_path)).storage)


def test_a_marker_that_is_no_json_is_refused(tmp_path: Path) -> None:
    made_range(tmp_path, 0, 2, {})
    (tmp_path / range_directory(0, 2) / MARKER).write_text("{")
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        directory_progress(REQUEST, DeltaTable(str(tmp_path)).storage)


@pytest.mark.parametrize("versions", [(3, 7), (0, 2), (9, 10)])
def test_the_files_of_the_newest_range_and_of_the_one_asked_for_are_those_of_its_run(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    """A run that was taken for dead goes on copying into the range that another one has completed."""
    storage = DeltaTable(str(tmp_path)).storage
    marker = {"table_id": "ours", "files": {"part-0.parquet": 4}}
    for start, end in ((0, 2), (3, 7), (9, 10)):
        made_range(tmp_path, start, end, marker)
    assert directory_progress(REQUEST, storage).ranges == ((0, 7), (9, 10))
    folder = tmp_path / range_directory(*versions)
    (folder / ".part-0.parquet.crc").write_bytes(b"crc")
    (folder / "part-1.parquet").write_bytes(b"rows")
    if versions == (0, 2):
        # Looking into all markers would take a request for each.
        assert directory_progress(REQUEST, storage).ranges == ((0, 7), (9, 10))
        return
    with pytest.raises(CommitConflictError, match=r"it has part-1\.parquet; another run writes"):
        directory_progress(REQUEST, storage)
    (folder / "part-1.parquet").unlink()
    (folder / "part-0.parquet").write_bytes(b"ro")
    with pytest.raises(
        CommitConflictError, match=r"lacks part-0\.parquet; .* delete the directory"
    ):
        directory_progress(REQUEST, storage)


def test_a_version_that_two_ranges_tell_is_no_secret(tmp_path: Path) -> None:
    for start, end in ((0, 1), (2, 5), (4, 9)):
        made_range(tmp_path, start, end, {"table_id": "ours"})
    storage = DeltaTable(str(tmp_path)).storage
    both = (
        f"{range_directory(2, 5)} and {range_directory(4, 9)} both have .* 4 to 5, .*: delete one"
    )
    with pytest.raises(InvalidArgumentError, match=both):
        directory_progress(REQUEST, storage)


def test_neither_format_is_taken_for_the_other(tmp_path: Path) -> None:
    table = source(tmp_path / "t", "ours", "ours")
    made_range(tmp_path / "files", 0, 1, {"table_id": "ours"})
    (tmp_path / "log").mkdir()
    source(tmp_path / "log", "other")
    (tmp_path / "log" / "part-0.parquet").write_bytes(b"rows")
    for name, kind, message in (
        ("files", "delta", f"holds {range_directory(0, 1)}, .* choose that format"),
        ("log", "parquet", "is a Delta table, .* choose the format delta"),
    ):
        target = str(tmp_path / name)
        before = sorted((tmp_path / name).rglob("*"))
        request = FeedRequest(table.uri, 1, 1, target, kind)
        for look in (target_progress, lambda r, t: load_progress(r, table, t)):
            with pytest.raises(InvalidArgumentError, match=message):
                look(request, DeltaTable(target))
        assert sorted((tmp_path / name).rglob("*")) == before


def test_what_can_be_known_without_spark(tmp_path: Path) -> None:
    table = source(tmp_path / "t", "ours", "ours")
    request = FeedRequest(table.uri, 0, 1, str(tmp_path / "c"))
    assert load_progress(request, table, DeltaTable(request.target_uri)) == FeedProgress()
    marks = transaction_identifiers(request, FeedProgress(), "ours")
    target = held(tmp_path / "c", add("a"), *(txn(*mark) for mark in marks.items()))
    assert load_progress(request, table, target) is None
    later = source(tmp_path / "t2", "ours", "ours", "ours")
    with pytest.raises(InvalidArgumentError, match="no change feed has written it"):
        load_progress(FeedRequest(later.uri, 2, 2, request.target_uri), later, target)


def test_the_start_of_a_range_is_in_its_identifier() -> None:
    assert range_app_id(12) == "airflow-delta:changes-from:12"
