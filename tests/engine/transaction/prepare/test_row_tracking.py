"""Row ids: PROTOCOL.md, "Writer Requirements for Row Tracking"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.engine.transaction.prepare.attempts import (
    VECTOR,
    attempt,
    counted,
    file,
    first_attempt,
    table,
    tombstone,
    with_properties,
    write,
)
from tests.log_builder import add, write_commit

FEATURES = ("rowTracking", "domainMetadata")
OTHER = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 7)
NAMES = {
    "delta_rowTracking.materializedRowIdColumnName": "_row-id",
    "delta_rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}


def domain(configuration: str) -> dict[str, Any]:
    action = {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}
    return {"domainMetadata": action}


def ids(added: dict[str, Any]) -> tuple[int, int]:
    return added["baseRowId"], added["defaultRowCommitVersion"]


def live(root: Path) -> dict[str, tuple[int | None, int | None]]:
    rows = DeltaTable(str(root)).snapshot().files().to_pylist()
    return {row["path"]: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in rows}


def mark(root: Path) -> int:
    tracking = DeltaTable(str(root)).snapshot().row_tracking
    assert tracking is not None
    return tracking.high_water_mark


def test_ids_are_counted_from_zero_and_go_on(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    assert mark(tmp_path) == -1
    write(
        tmp_path, attempt(tmp_path, adds=(file("a", stats=counted(3)), file("b", stats=counted(2))))
    )
    assert live(tmp_path) == {"a": (0, 1), "b": (3, 1)}
    assert mark(tmp_path) == 4
    write(tmp_path, attempt(tmp_path, adds=(file("c", stats=counted(1)),)))
    assert live(tmp_path) == {"a": (0, 1), "b": (3, 1), "c": (5, 2)}
    assert mark(tmp_path) == 5


def test_the_mark_is_written_under_the_one_key_that_every_writer_reads(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    written = write(tmp_path, attempt(tmp_path, adds=(file(stats=counted(7)),)))
    assert [json.loads(d["configuration"]) for d in written["domainMetadata"]] == [
        {"rowIdHighWaterMark": 6}
    ]


@pytest.mark.parametrize("key", ["highWaterMark", "rowIdHighWaterMark"])
def test_the_marks_of_other_writers_are_gone_on_from(tmp_path: Path, key: str) -> None:
    table(tmp_path, FEATURES, domain(json.dumps({key: 41})))
    written = write(tmp_path, attempt(tmp_path, adds=(file(stats=counted(2)),)))
    assert ids(written["add"][0]) == (42, 1)


def test_the_mark_is_written_only_if_it_moves(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, add("a", baseRowId=0, defaultRowCommitVersion=0, stats=counted(3)))
    emptied = attempt(tmp_path, adds=(file("empty", stats=counted(0)),))
    assert "delta.rowTracking" not in emptied.actions.domains
    assert emptied.actions.adds[0].default_row_commit_version == 1
    assert not attempt(tmp_path, removes=(tombstone("a"),)).actions.domains


@pytest.mark.parametrize("stats", [None, "{}", '{"numRecords":-1}', '{"numRecords":"3"}'])
def test_a_file_without_num_records_gets_no_ids(tmp_path: Path, stats: str | None) -> None:
    table(tmp_path, FEATURES)
    with pytest.raises(ConstraintViolationError, match="'bad' lack numRecords") as caught:
        attempt(tmp_path, adds=(file("good", stats=counted(1)), file("bad", stats=stats)))
    assert caught.value.table == str(tmp_path)


def test_another_deletion_vector_keeps_the_ids_of_the_file(tmp_path: Path) -> None:
    masked = add("f", deletionVector=VECTOR.to_json(), stats=counted(30))
    masked["add"] |= {"baseRowId": 100, "defaultRowCommitVersion": 0}
    table(
        tmp_path,
        (*FEATURES, "deletionVectors"),
        masked,
        domain('{"rowIdHighWaterMark":200}'),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    written = write(
        tmp_path,
        attempt(
            tmp_path,
            removes=(tombstone("f", deletion_vector=VECTOR),),
            adds=(file("f", deletion_vector=OTHER, stats=counted(30)),),
        ),
    )
    assert ids(written["add"][0]) == ids(written["remove"][0]) == (100, 0)
    assert "domainMetadata" not in written


def test_a_file_that_is_committed_again_keeps_its_ids_under_any_spelling(tmp_path: Path) -> None:
    before = add("file:///elsewhere/a@b", baseRowId=5, defaultRowCommitVersion=0)
    table(tmp_path, FEATURES, before, domain('{"rowIdHighWaterMark":9}'))
    again = file("/elsewhere/a%40b", stats=counted(3), data_change=False)
    assert ids(attempt(tmp_path, adds=(again,)).actions.adds[0].to_json()) == (5, 0)


def test_a_file_from_before_the_feature_gets_ids_when_it_is_committed_again(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, add("old", stats=counted(4)))
    written = write(tmp_path, attempt(tmp_path, adds=(file("old", stats=counted(4)),)))
    assert ids(written["add"][0]) == (0, 1)
    assert mark(tmp_path) == 3


def test_a_removed_file_from_before_the_feature_gets_none(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, add("old"))
    removed = attempt(tmp_path, removes=(tombstone("old"),)).actions.removes[0]
    assert (removed.base_row_id, removed.default_row_commit_version) == (None, None)


def test_a_restored_file_comes_back_with_its_ids(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    write(tmp_path, attempt(tmp_path, adds=(file("f", stats=counted(3)),)))
    write(tmp_path, attempt(tmp_path, removes=(tombstone("f"),)))
    old = file("f", base_row_id=0, default_row_commit_version=1, stats=counted(3))
    written = write(tmp_path, attempt(tmp_path, operation="RESTORE", adds=(old,)))
    assert ids(written["add"][0]) == (0, 1)
    assert "domainMetadata" not in written


@pytest.mark.parametrize(
    ("first", "records", "fits"),
    [(9, 1, True), (8, 2, True), (10, 0, True), (9, 2, False), (10, 1, False), (-1, 1, False)],
)
def test_ids_that_were_never_assigned_are_refused(
    tmp_path: Path, first: int, records: int, fits: bool
) -> None:
    table(tmp_path, FEATURES, domain('{"rowIdHighWaterMark":9}'))
    given = file(base_row_id=first, default_row_commit_version=0, stats=counted(records))
    if fits:
        assert attempt(tmp_path, adds=(given,)).actions.adds == (given,)
    else:
        with pytest.raises(ConstraintViolationError, match="ever assigned is 9"):
            attempt(tmp_path, adds=(given,))


def test_an_empty_file_stays_where_it_is(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    write(tmp_path, attempt(tmp_path, adds=(file("empty", stats=counted(0)),)))
    again = file("empty", stats=counted(0), data_change=False)
    assert ids(attempt(tmp_path, adds=(again,)).actions.adds[0].to_json()) == (0, 1)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("old", {}),
        ("old", {"base_row_id": 2}),
        ("old", {"default_row_commit_version": 9}),
        ("old", {"base_row_id": 2, "default_row_commit_version": 0}),
        ("old", {"base_row_id": -5, "default_row_commit_version": 99}),
        # With both it would be a file that comes back.
        ("new", {"base_row_id": 2}),
        ("new", {"base_row_id": -5}),
        ("new", {"default_row_commit_version": 99}),
    ],
)
def test_ids_are_not_the_writers_to_choose(
    tmp_path: Path, path: str, given: dict[str, int]
) -> None:
    table(tmp_path, FEATURES, add("old", stats=counted(4)))
    write(tmp_path, attempt(tmp_path, adds=(file("first", stats=counted(5)),)))
    write(tmp_path, attempt(tmp_path, adds=(file(path, stats=counted(4), **given),)))
    assert live(tmp_path) == {"old": (None, None), "first": (0, 1), path: (5, 2)}
    assert mark(tmp_path) == 8


@pytest.mark.parametrize(("version", "fits"), [(0, True), (1, True), (2, False), (-1, False)])
def test_a_restored_file_is_from_an_earlier_version(
    tmp_path: Path, version: int, fits: bool
) -> None:
    table(tmp_path, FEATURES, domain('{"rowIdHighWaterMark":9}'))
    write_commit(tmp_path, 1, add("other"))
    given = file(base_row_id=0, default_row_commit_version=version, stats=counted(3))
    if fits:
        assert attempt(tmp_path, adds=(given,)).actions.adds == (given,)
    else:
        with pytest.raises(ConstraintViolationError, match=f"CommitVersion {version}: expected"):
            attempt(tmp_path, adds=(given,))


@pytest.mark.parametrize(
    ("first", "records", "fits"),
    [
        (0, 10, True),
        (0, 11, False),  # the first row of "a", 10 to 14
        (14, 1, False),
        (12, 1, False),
        (15, 5, True),
        (15, 6, False),  # "untold" from 20 on: up to the next file's ids, perhaps
        (25, 1, False),
        (29, 1, False),
        (30, 1, False),  # "b", 30 to 32
        (33, 7, True),
        (12, 0, True),
    ],
)
def test_no_row_id_is_there_twice(tmp_path: Path, first: int, records: int, fits: bool) -> None:
    numbers = {"defaultRowCommitVersion": 0}
    table(
        tmp_path,
        FEATURES,
        add("b", baseRowId=30, stats=counted(3), **numbers),
        add("a", baseRowId=10, stats=counted(5), **numbers),
        add("untold", baseRowId=20, **numbers),
        add("empty", baseRowId=31, stats=counted(0), **numbers),
        add("untracked", stats=counted(99)),
        domain('{"rowIdHighWaterMark":39}'),
    )
    back = file(base_row_id=first, default_row_commit_version=0, stats=counted(records))
    fresh = file("fresh", stats=counted(2))
    if fits:
        given = attempt(tmp_path, adds=(fresh, back)).actions.adds
        assert [added.base_row_id for added in given] == [40, first]
    else:
        with pytest.raises(ConstraintViolationError, match="overlap with those of another file"):
            attempt(tmp_path, adds=(fresh, back))


def test_two_restored_files_have_ids_of_their_own(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, domain('{"rowIdHighWaterMark":39}'))
    one, same, other = (
        file(path, base_row_id=first, default_row_commit_version=0, stats=counted(5))
        for path, first in (("one", 0), ("same", 4), ("other", 5))
    )
    attempt(tmp_path, adds=(one, other))
    with pytest.raises(ConstraintViolationError, match=r"'same', from 4 on, .* such as 'one'"):
        attempt(tmp_path, adds=(one, same))


def test_a_file_comes_back_where_those_with_its_rows_go(tmp_path: Path) -> None:
    after = add("after", baseRowId=0, defaultRowCommitVersion=0, stats=counted(9))
    table(tmp_path, FEATURES, after, domain('{"rowIdHighWaterMark":8}'))
    before = file("before", base_row_id=3, default_row_commit_version=0, stats=counted(5))
    with pytest.raises(ConstraintViolationError, match="'before', from 3 on"):
        attempt(tmp_path, adds=(before,))
    attempt(tmp_path, adds=(before,), removes=(tombstone("after"),))


def test_a_live_file_has_the_ids_that_it_has(tmp_path: Path) -> None:
    before = add("f", baseRowId=5, defaultRowCommitVersion=0, stats=counted(1))
    table(tmp_path, FEATURES, before, domain('{"rowIdHighWaterMark":9}'))
    with pytest.raises(
        ConstraintViolationError, match=r"baseRowId 4 .* in the table it has 5 and 0"
    ):
        attempt(tmp_path, adds=(file("f", base_row_id=4),))


def test_a_second_attempt_counts_on_from_the_winner(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    staged = (file("mine", stats=counted(2)),)
    lost = attempt(tmp_path, adds=staged)
    assert ids(lost.actions.adds[0].to_json()) == (0, 1)
    write(tmp_path, attempt(tmp_path, adds=(file("theirs", stats=counted(10)),)))
    write(tmp_path, attempt(tmp_path, adds=staged))
    assert live(tmp_path) == {"theirs": (0, 1), "mine": (10, 2)}
    assert mark(tmp_path) == 11


def test_a_suspended_table_loses_ids(tmp_path: Path) -> None:
    before = add("f", baseRowId=5, defaultRowCommitVersion=0)
    suspended = {"delta.rowTrackingSuspended": "true"}
    table(tmp_path, FEATURES, before, domain('{"rowIdHighWaterMark":9}'), configuration=suspended)
    written = write(tmp_path, attempt(tmp_path, adds=(file("f", base_row_id=5), file("new"))))
    for added in written["add"]:
        assert not {"baseRowId", "defaultRowCommitVersion"} & added.keys()
    assert "domainMetadata" not in written


@pytest.mark.parametrize("field", ["base_row_id", "default_row_commit_version"])
def test_a_table_without_row_tracking_gets_no_row_ids(tmp_path: Path, field: str) -> None:
    """Neither does a file that has them, left over from times with the feature, when it is added again."""
    left_over = add("old", baseRowId=0, defaultRowCommitVersion=0)
    table(tmp_path, ("domainMetadata",), left_over)
    for path in ("new", "old"):
        assert attempt(tmp_path, adds=(file(path, **{field: 0}),)).actions.adds == (file(path),)


def test_ids_end_somewhere(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, domain(json.dumps({"rowIdHighWaterMark": 2**63 - 3})))
    attempt(tmp_path, adds=(file(stats=counted(2)),))
    with pytest.raises(ConstraintViolationError, match="can't track more rows"):
        attempt(tmp_path, adds=(file(stats=counted(3)),))


def test_a_mark_that_cannot_be_read_stops_writers(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, domain('{"mark":1}'))
    with pytest.raises(InvalidTableError, match="rowIdHighWaterMark"):
        attempt(tmp_path, adds=(file(stats=counted(1)),))


def test_row_tracking_is_enabled_once_every_file_has_ids(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, add("old", stats=counted(4)))
    write(tmp_path, attempt(tmp_path, adds=(file("new", stats=counted(1)),)))
    enabling = with_properties(tmp_path, delta_enableRowTracking="true", **NAMES)
    with pytest.raises(ConstraintViolationError, match="1 files are otherwise, such as 'old'"):
        attempt(tmp_path, metadata=enabling)
    # Given ids by the same commit, or gone with it.
    attempt(tmp_path, metadata=enabling, removes=(tombstone("old"),))
    again = file("old", stats=counted(4), data_change=False)
    write(tmp_path, attempt(tmp_path, metadata=enabling, adds=(again,)))
    assert live(tmp_path) == {"new": (0, 1), "old": (1, 2)}


def test_row_tracking_is_not_enabled_without_names_for_its_columns(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    with pytest.raises(InvalidTableError, match="materializedRowIdColumnName is missing"):
        attempt(tmp_path, metadata=with_properties(tmp_path, delta_enableRowTracking="true"))
    taken = {**NAMES, "delta_rowTracking.materializedRowIdColumnName": "ID"}
    with pytest.raises(InvalidTableError, match="as another column is called"):
        attempt(
            tmp_path, metadata=with_properties(tmp_path, delta_enableRowTracking="true", **taken)
        )


def test_a_new_table_may_come_with_files(tmp_path: Path) -> None:
    table(tmp_path / "like", FEATURES)
    like = DeltaTable(str(tmp_path / "like")).snapshot()
    features = Protocol(1, 7, None, frozenset(FEATURES))
    made = first_attempt(tmp_path, features, like.metadata, adds=(file("f", stats=counted(2)),))
    written = write(tmp_path, made)
    assert ids(written["add"][0]) == (0, 0)
    assert mark(tmp_path) == 1


def test_many_files_get_disjoint_ranges(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    sizes = [(number * 7) % 11 for number in range(200)]
    adds = tuple(file(f"f{n}", stats=counted(size)) for n, size in enumerate(sizes))
    given = attempt(tmp_path, adds=adds).actions.adds
    rows = [
        row
        for added, size in zip(given, sizes, strict=True)
        for row in range(added.base_row_id or 0, (added.base_row_id or 0) + size)
    ]
    assert sorted(rows) == list(range(sum(sizes)))


def test_the_mark_of_a_later_commit_of_another_writer_counts(tmp_path: Path) -> None:
    table(tmp_path, FEATURES)
    write_commit(tmp_path, 1, domain('{"rowIdHighWaterMark":99,"highWaterMark":120}'))
    assert mark(tmp_path) == 120
    assert ids(attempt(tmp_path, adds=(file(stats=counted(1)),)).actions.adds[0].to_json()) == (
        121,
        2,
    )
