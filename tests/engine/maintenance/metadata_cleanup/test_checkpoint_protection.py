"""The rules of the RFC checkpoint-protection, a to d, and the protocols of older versions.

The boundary is 20, and there are checkpoints of 5, 12 and 20.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest

from airflow_delta.engine.errors import (
    CorruptLogError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import explain_unknown
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    MetadataCleanupPlan,
    plan_metadata_cleanup,
)
from airflow_delta.engine.maintenance.metadata_cleanup.protocol_history import read_protocol_history
from airflow_delta.engine.model.actions import Protocol
from tests.cleanup_tables import DAY, LAST, START, Log, epoch_ms
from tests.faulty_storage import FaultyStorage
from tests.laws.histories import protocol
from tests.log_builder import add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    checksum,
    classic_checkpoint,
    commit_file,
    commits,
    lines,
    state_of,
    states,
    v2_checkpoint,
)

BOUNDARY, END = 20, 23
CHECKPOINTS = (5, 12, 20)
KNOWN = frozenset({"v2Checkpoint", "checkpointProtection"})
PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"


def history(unknown: range = range(0), feature: str = "novelty") -> list[list[Action]]:
    """Versions 0 to 23, a day between two, some of them with a feature that nobody knows."""
    properties = {PROTECTION: str(BOUNDARY), "delta.logRetentionDuration": "interval 0 days"}
    found: list[list[Action]] = [[add(f"f{version}")] for version in range(END + 1)]
    found[0] += [protocol({*KNOWN}), metadata(configuration=properties)]
    if unknown:
        found[unknown.start].append(protocol({*KNOWN, feature}))
        found[unknown.stop].append(protocol({*KNOWN}))
    return found


def table_of(
    found: list[list[Action]],
    *,
    checkpoints: tuple[int, ...] = CHECKPOINTS,
    checksums: bool = False,
) -> MemoryTable:
    files, state = commits(found), states(found)
    for version in checkpoints:
        files |= classic_checkpoint(state[version], version)
    if checksums:
        for version in range(END + 1):
            files |= checksum(state[version], version)
    table = MemoryTable(files)
    for path in files:
        version = int(path.removeprefix("_delta_log/")[:20])
        table.storage.set_modified(path, epoch_ms(START + version * DAY))
    return table


def planned(table: MemoryTable, cutoff: int) -> MetadataCleanupPlan:
    """A cleanup on the day after a version was made."""
    now: datetime = START + (cutoff + 1) * DAY - timedelta(hours=6)
    snapshot = open_backfilled(table.storage)
    return plan_metadata_cleanup(table.storage, snapshot, now_ms=epoch_ms(now))


def commits_left(table: MemoryTable) -> list[int]:
    names = (re.fullmatch(r"_delta_log/(\d{20})\.json", path) for path in table.files())
    return sorted(int(name[1]) for name in names if name)


def checkpoints_left(table: MemoryTable) -> list[int]:
    names = (re.fullmatch(r"_delta_log/(\d{20})\.checkpoint.*", path) for path in table.files())
    return sorted(int(name[1]) for name in names if name)


# Rules a and c


@pytest.mark.parametrize(
    ("cutoff", "start", "checkpoints"),
    [
        (4, None, [5, 12, 20]),
        (5, 5, [5, 12, 20]),
        (11, 5, [5, 12, 20]),
        (12, 12, [5, 12, 20]),
        (19, 12, [5, 12, 20]),
        (20, 20, [20]),
        (23, 20, [20]),
    ],
)
@pytest.mark.parametrize("checksums", [False, True])
def test_checkpoints_below_the_boundary_are_deleted_only_all_at_once(
    cutoff: int, start: int | None, checkpoints: list[int], checksums: bool
) -> None:
    with table_of(history(), checksums=checksums) as table:
        plan = planned(table, cutoff)
        assert (plan.cutoff.commit, plan.checkpoint) == (cutoff, start)
        execute_metadata_cleanup(table.storage, plan)
        assert checkpoints_left(table) == checkpoints
        assert commits_left(table) == [*range(start or 0, END + 1)]
        assert plan.earliest_version == (start or 0)
        assert plan.protected_versions == ((5,) if start == 12 else ())
        for version in {*plan.protected_versions, plan.earliest_version, END}:
            found = state_of(table.delta().snapshot(version))
            assert found == states(history())[version].visible()
        if start == 12:
            assert "checkpoints below version 20 are deleted only all at once" in (
                plan.reason or ""
            )
            with pytest.raises(VersionNotFoundError, match="version 6 can't be loaded") as e:
                table.delta().snapshot(6)
            assert e.value.earliest == 12


@pytest.mark.parametrize(
    ("unknown", "cutoff", "start"),
    [
        # Cleaned up to 11: allowed, where all protocols up to there are known.
        (range(12, 14), 12, 12),
        (range(13, 16), 12, 12),
        # Versions 3 to 8 must stay, and so all of them; 5 is no version to begin with either.
        (range(3, 9), 12, None),
        (range(3, 9), 19, None),
        # The first ones may go.
        (range(6, 9), 12, 5),
        (range(5, 9), 12, 5),
        (range(4, 9), 12, None),
        (range(13, 16), 19, 12),
        # All at once.
        (range(3, 9), 20, 20),
        (range(3, 19), 23, 20),
        # Not all: a checkpoint of 20 is not the newest one yet.
        (range(3, 19), 19, None),
    ],
)
@pytest.mark.parametrize("checksums", [False, True])
def test_a_version_of_an_unknown_protocol_is_deleted_with_all_others_or_stays(
    unknown: range, cutoff: int, start: int | None, checksums: bool
) -> None:
    found = history(unknown)
    with table_of(found, checksums=checksums) as table:
        plan = planned(table, cutoff)
        assert plan.checkpoint == start
        execute_metadata_cleanup(table.storage, plan)
        assert commits_left(table) == [*range(start or 0, END + 1)]
        assert checkpoints_left(table) == ([20] if start == 20 else [5, 12, 20])
        for version in {start or 0, unknown.start, END}:
            if version >= (start or 0):
                expected = states(found)[version].visible()
                assert state_of(table.delta().snapshot(version)) == expected
        if start is None or start < min(c for c in (5, 12, 20) if c <= cutoff):
            first = f"the protocol of version {unknown.start}, which may be deleted only together"
            assert first in (plan.reason or "")
            assert "novelty" in (plan.reason or "")


@pytest.mark.parametrize("last", [BOUNDARY - 1, BOUNDARY])
@pytest.mark.parametrize("unknown", [range(0), range(3, 9)])
def test_a_checkpoint_just_below_the_boundary_is_protected_and_one_at_it_is_not(
    last: int, unknown: range
) -> None:
    """Rules a and c: the boundary is the first version that the property doesn't name."""
    found = history(unknown)
    with table_of(found, checkpoints=(12, last)) as table:
        plan = planned(table, last)
        execute_metadata_cleanup(table.storage, plan)
        if last == BOUNDARY:
            assert (plan.checkpoint, checkpoints_left(table)) == (BOUNDARY, [BOUNDARY])
            return
        assert checkpoints_left(table) == [12, last]
        if unknown:
            assert (plan.checkpoint, commits_left(table)) == (None, [*range(END + 1)])
            assert "doesn't know the protocol of version 3" in (plan.reason or "")
        else:
            assert (plan.checkpoint, plan.protected_versions) == (last, (12,))


def test_why_a_checkpoint_is_wanted() -> None:
    """There is none from the boundary on that is old enough, and one would let everything go."""
    with table_of(history(range(3, 9)), checkpoints=(5, 12)) as table:
        assert planned(table, 12).wanted_checkpoint is None
        plan = planned(table, 21)
        assert (plan.checkpoint, plan.wanted_checkpoint) == (None, 21)
        assert table.delta().checkpoint(21).written
        assert planned(table, 21).checkpoint == 21


def test_a_checkpoint_that_can_not_be_read_is_not_begun_with() -> None:
    """Version 12 has a feature that readers must know: its checkpoint is somebody else's."""
    found = history()
    for version, named in ((12, {*KNOWN, "deletionVectors2"}), (13, {*KNOWN})):
        listed = protocol(named)["protocol"]
        listed["readerFeatures"] = sorted({*named, "deletionVectors"} - {"checkpointProtection"})
        found[version].append({"protocol": listed})
    with table_of(found) as table:
        plan = planned(table, 14)
        assert plan.checkpoint == 5
        assert re.search(
            r"12.checkpoint.parquet can't be relied on: .*deletionVectors2", plan.reason or ""
        )
        assert planned(table, 20).checkpoint == 20


def test_protocols_of_versions_that_cannot_be_rebuilt_do_not_matter() -> None:
    """Commits 0 to 6 are gone, and 7 to 11 can't be rebuilt; of 8 nobody knows the protocol."""
    found = history(range(8, 9))
    with table_of(found) as table:
        table.storage.delete([commit_file(version) for version in range(7)])
        plan = planned(table, 12)
        assert (plan.checkpoint, plan.count("commits")) == (12, 5)
        execute_metadata_cleanup(table.storage, plan)
        assert commits_left(table) == [*range(12, END + 1)]
        assert checkpoints_left(table) == [5, 12, 20]
        assert plan.protected_versions == (5,)


def test_a_protocol_that_can_not_be_established_is_unknown() -> None:
    with table_of(history()) as table:
        for version, start in ((7, 5), (4, None)):
            table.put({commit_file(version): b'{"protocol": broken'})
            table.storage.set_modified(commit_file(version), epoch_ms(START + version * DAY))
            plan = planned(table, 12)
            assert plan.checkpoint == start
            assert f"protocol of version {version}, " in (plan.reason or "")
            assert "its protocol can't be established" in (plan.reason or "")


def test_a_checkpoint_next_to_the_first_commit_makes_one_more_version() -> None:
    with table_of(history(), checkpoints=(11, 12, 20)) as table:
        plan = planned(table, 13)
        assert (plan.checkpoint, plan.earliest_version, plan.protected_versions) == (12, 11, ())
        execute_metadata_cleanup(table.storage, plan)
        assert state_of(table.delta().snapshot(11)) == states(history())[11].visible()
        with pytest.raises(VersionNotFoundError, match="covers versions 11 to 23"):
            table.delta().snapshot(10)


def test_checkpoints_next_to_one_another_make_more_versions() -> None:
    """The plan and the error name the same version: from there on all can be read."""
    with table_of(history(), checkpoints=(5, 9, 10, 11, 12, 20)) as table:
        plan = planned(table, 13)
        assert (plan.checkpoint, plan.earliest_version, plan.protected_versions) == (12, 9, (5,))
        execute_metadata_cleanup(table.storage, plan)
        for version in (5, *range(9, 13)):
            found = state_of(table.delta().snapshot(version))
            assert found == states(history())[version].visible()
        again = planned(table, 13), planned(table, 5)
        assert [(plan.needed, plan.earliest_version) for plan in again] == [(False, 9)] * 2
        with pytest.raises(VersionNotFoundError) as e:
            table.delta().snapshot(8)
        assert e.value.earliest == 9


# Damage


def damaged(table: MemoryTable, version: int) -> None:
    path = f"_delta_log/{version:020}.checkpoint.parquet"
    modified = table.storage.head(path).modified_ms
    table.put({path: table.files()[path][:-20]})
    table.storage.set_modified(path, modified)


@pytest.mark.parametrize(
    ("broken", "earliest", "promised"),
    [(5, 11, (8,)), (8, 11, (5,)), (11, 12, (5, 8))],
)
@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_what_a_damaged_protected_checkpoint_held_is_not_promised(
    broken: int, earliest: int, promised: tuple[int, ...]
) -> None:
    with table_of(history(), checkpoints=(5, 8, 11, 12, 20)) as table:
        damaged(table, broken)
        plan = planned(table, 13)
        assert (plan.earliest_version, plan.protected_versions) == (earliest, promised)
        assert f"{broken:020}.checkpoint.parquet can't be relied on" in (plan.reason or "")
        execute_metadata_cleanup(table.storage, plan)
        for version in (*promised, *range(earliest, END + 1)):
            found = state_of(table.delta().snapshot(version))
            assert found == states(history())[version].visible()
        with pytest.raises((VersionNotFoundError, CorruptLogError)):
            table.delta().snapshot(broken)
        # It stays where it is protected, for others may be able to read it.
        assert checkpoints_left(table) == [5, 8, 11, 12, 20]


@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_one_whole_checkpoint_of_a_version_is_enough() -> None:
    found = history()
    with table_of(found) as table:
        table.put(v2_checkpoint(states(found)[5], 5, form="json", sidecars=1))
        damaged(table, 5)
        plan = planned(table, 13)
        assert (plan.protected_versions, plan.checkpoint) == ((5,), 12)
        execute_metadata_cleanup(table.storage, plan)
        assert state_of(table.delta().snapshot(5)) == states(found)[5].visible()


@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_a_damaged_checkpoint_rebuilds_nothing_whose_protocol_would_have_to_be_known() -> None:
    """A cleanup died after commits 0 to 4; what 5 was to begin with is damaged, so 8 comes next."""
    for unknown, start in ((range(6, 8), 12), (range(9, 10), 8), (range(8, 10), 8)):
        found = history(unknown)
        with table_of(found, checkpoints=(5, 8, 12, 20)) as table:
            damaged(table, 5)
            table.storage.delete([commit_file(version) for version in range(5)])
            plan = planned(table, 13)
            assert plan.checkpoint == start
            execute_metadata_cleanup(table.storage, plan)
            assert commits_left(table) == [*range(start, END + 1)]
            assert not planned(table, 13).needed


@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_a_log_is_not_begun_with_a_checkpoint_that_leads_nowhere() -> None:
    """Commits 0 to 11 are gone, and what the log began with after that is damaged by now."""
    with table_of(history()) as table:
        table.storage.delete([commit_file(version) for version in range(12)])
        damaged(table, 12)
        plan = planned(table, 19)
        assert (plan.checkpoint, plan.needed) == (None, False)
        assert re.search(r"0005.checkpoint.parquet is useless: commits after it", plan.reason or "")
        assert planned(table, 20).checkpoint == 20


def test_without_the_feature_the_property_means_nothing() -> None:
    found = history()
    found[0][1] = protocol({"v2Checkpoint"})
    with table_of(found) as table:
        plan = planned(table, 12)
        execute_metadata_cleanup(table.storage, plan)
        assert checkpoints_left(table) == [12, 20]
        assert plan.protected_versions == ()


# Rule b


def test_a_version_of_an_unknown_protocol_gets_no_checkpoint() -> None:
    with table_of(history(range(6, 9))) as table:
        with pytest.raises(UnsupportedFeatureError, match="novelty"):
            table.delta().checkpoint(7)
        assert table.delta().checkpoint(9).written


# Rule d


@pytest.mark.parametrize("checksums", [False, True])
def test_commits_are_deleted_before_checkpoints(checksums: bool) -> None:
    with table_of(history(range(3, 9)), checksums=checksums) as table:
        storage = FaultyStorage(table.storage)
        execute_metadata_cleanup(storage, planned(table, 20))
        deletes = [call.path.split(",") for call in storage.calls if call.operation == "delete"]
        assert deletes[0] == [commit_file(version) for version in range(20)]
        assert deletes[-1] == [f"_delta_log/{v:020}.checkpoint.parquet" for v in (5, 12)]


# What is known


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, None),
        ({"minReaderVersion": 2, "minWriterVersion": 6}, None),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["managedCommit"]}, None),
        (
            {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["novelty", "appendOnly"],
            },
            r"can't write with its feature novelty$",
        ),
        ({"minReaderVersion": 1, "minWriterVersion": 8}, "writer version 8"),
        ({"minReaderVersion": 4, "minWriterVersion": 7, "writerFeatures": []}, "reader version 4"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["novelty"],
                "writerFeatures": ["novelty"],
            },
            "can't read the table because of its feature novelty",
        ),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["catalogManaged"]},
            "catalogManaged",
        ),
    ],
)
def test_a_protocol_is_known_with_all_its_features(fields: Action, reason: str | None) -> None:
    found = explain_unknown(Protocol.from_json(fields, "the test's"), table="t")
    assert (found is None) if reason is None else re.search(reason, found or "")


# The protocols of versions


def log_of_protocols(*, checksums: bool, first: int = 0) -> Files:
    """Versions 0 to 8, 3 and 4 with an unknown feature, the commits of 5 to 7 larger than checksums."""
    log = Log((first,), extras=checksums, unknown=range(3, 5))
    files = log.files()
    for version in (5, 6, 7):
        path = f"_delta_log/{version:020}.json"
        files[path] = lines([{"commitInfo": {"x": "y" * 5000}}]) + files[path]
    return {p: c for p, c in files.items() if not (p < f"_delta_log/{first:020}" and "/0" in p)}


PROTOCOLS = [
    (0, 8, [(0, False), (3, True), (5, False)]),
    (0, 2, [(0, False)]),
    (3, 3, [(3, True)]),
    (4, 8, [(4, True), (5, False)]),
    (5, 8, [(5, False)]),
]


@pytest.mark.parametrize("checksums", ["none", "true", "false"])
@pytest.mark.parametrize(("first", "last", "expected"), PROTOCOLS)
def test_the_protocol_of_each_version_comes_from_its_commit(
    checksums: str, first: int, last: int, expected: list[tuple[int, bool]]
) -> None:
    """A checksum repeats the protocol, and a cleanup deletes for good: none is even opened."""
    log = log_of_protocols(checksums=checksums != "none")
    if checksums == "false":
        known = json.loads(log[f"_delta_log/{0:020}.crc"])["protocol"]
        for version in range(LAST + 1):
            path = f"_delta_log/{version:020}.crc"
            log[path] = json.dumps({**json.loads(log[path]), "protocol": known}).encode()
    with MemoryTable(log) as table:
        storage = FaultyStorage(table.storage)
        found = list(read_protocol_history(storage, first=first, last=last))
        assert [
            (version, "novelty" in (protocol.writer_features or ())) for version, protocol in found
        ] == expected
        assert not [call for call in storage.calls if ".crc" in call.path]


def test_after_a_cleanup_the_first_protocol_comes_from_the_checkpoint() -> None:
    with MemoryTable(log_of_protocols(checksums=False, first=4)) as table:
        assert f"_delta_log/{3:020}.json" not in table.files()
        found = list(read_protocol_history(table.storage, first=4, last=LAST))
        assert [(v, "novelty" in (p.writer_features or ())) for v, p in found] == [
            (4, True),
            (5, False),
        ]
