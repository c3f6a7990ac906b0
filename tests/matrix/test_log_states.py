"""Every kind of table in every state of its log, asked for every version and at every time.

The axes: what the log still holds, which features the table has, and how a version is asked for.
Each table has five commits, one second apart; what they come to is told by `replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import TimestampOutOfRangeError, VersionNotFoundError
from airflow_delta.engine.model.actions import AddFile
from tests.log_builder import PROTOCOL, SCHEMA, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    checksum,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

START_MS = 1_700_000_000_000
LAST, CHECKPOINT = 4, 2
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}


@dataclass(frozen=True)
class Feature:
    """A kind of table: its first actions, and what each later commit adds to the common ones."""

    protocol: Action
    metadata: Action
    more: Callable[[int], list[Action]] = lambda version: []
    in_commit: bool = False


def with_features(*features: str, reader: tuple[str, ...] = ()) -> Action:
    fields: Action = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
    if reader:
        fields["readerFeatures"] = list(reader)
    return {"protocol": {**fields, "writerFeatures": [*reader, *features]}}


def mapped() -> Action:
    """Column mapping by name: physical names differ."""
    fields = [
        {
            **field,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        }
        for number, field in enumerate(SCHEMA["fields"], start=1)
    ]
    return metadata(
        schema={**SCHEMA, "fields": fields},
        partition_columns=["part"],
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
        },
    )


def vectors(version: int) -> list[Action]:
    """Each commit but the first hides rows of the file that the one before it added."""
    if version == 0:
        return []
    path = f"f{version - 1}"
    gone = remove(path, deletionTimestamp=FAR_FUTURE_MS)
    return [gone, add(path, deletionVector=VECTOR, stats='{"numRecords":9}')]


def domains(version: int) -> list[Action]:
    removed = version == 3
    fields = {"domain": "mine", "configuration": str(version), "removed": removed}
    return [{"domainMetadata": fields}]


def transactions(version: int) -> list[Action]:
    return [
        {"txn": {"appId": "app", "version": version}},
        {"txn": {"appId": f"app{version}", "version": 1, "lastUpdated": START_MS}},
    ]


FEATURES = {
    "plain": Feature(PROTOCOL, metadata()),
    "partitioned": Feature(PROTOCOL, metadata(partition_columns=["part"])),
    "in-commit timestamps": Feature(
        with_features("inCommitTimestamp"),
        metadata(configuration={"delta.enableInCommitTimestamps": "true"}),
        in_commit=True,
    ),
    "deletion vectors": Feature(
        with_features(reader=("deletionVectors",)),
        metadata(configuration={"delta.enableDeletionVectors": "true"}),
        vectors,
    ),
    "column mapping": Feature(with_features(reader=("columnMapping",)), mapped()),
    "domain metadata": Feature(with_features("domainMetadata"), metadata(), domains),
    "transactions": Feature(PROTOCOL, metadata(), transactions),
}


def history(feature: Feature) -> list[list[Action]]:
    names = {"part": "x"} if feature.metadata["metaData"]["partitionColumns"] else {}
    if feature is FEATURES["column mapping"]:
        names = {"col-2": "x"}
    told: list[list[Action]] = []
    for version in range(LAST + 1):
        info: Action = {"operation": f"WRITE {version}", "timestamp": 1}
        if feature.in_commit:
            info["inCommitTimestamp"] = START_MS + 1000 * version
        actions = [{"commitInfo": info}]
        if version == 0:
            actions += [feature.protocol, feature.metadata, add("gone", partitionValues=names)]
        if version == 3:
            actions.append(remove("gone", deletionTimestamp=FAR_FUTURE_MS))
        actions.append(add(f"f{version}", partitionValues=names, stats='{"numRecords":9}'))
        told.append(actions + feature.more(version))
    return told


def _without(files: Files, versions: range) -> Files:
    gone = {commit_file(version) for version in versions}
    return {path: content for path, content in files.items() if path not in gone}


def json_only(files: Files, told: list[State]) -> Files:
    return files


def with_checksums(files: Files, told: list[State]) -> Files:
    sums = [checksum(state, version) for version, state in enumerate(told)]
    return files | {path: content for each in sums for path, content in each.items()}


def compacted(files: Files, told: list[State]) -> Files:
    return files | compaction(told[3], 3, expired=True)


def checkpoint_and_tail(files: Files, told: list[State]) -> Files:
    return _without(files | classic_checkpoint(told[CHECKPOINT], CHECKPOINT), range(CHECKPOINT))


def parts_and_tail(files: Files, told: list[State]) -> Files:
    parts = multipart_checkpoint(told[CHECKPOINT], CHECKPOINT, parts=2)
    return _without(files | parts, range(CHECKPOINT))


def checkpoint_without_its_commit(files: Files, told: list[State]) -> Files:
    return _without(files | classic_checkpoint(told[CHECKPOINT], CHECKPOINT), range(CHECKPOINT + 1))


def checkpoint_of_the_last(files: Files, told: list[State]) -> Files:
    return _without(files | classic_checkpoint(told[LAST], LAST), range(LAST))


def checkpoint_only(files: Files, told: list[State]) -> Files:
    return _without(files | classic_checkpoint(told[LAST], LAST), range(LAST + 1))


def v2_and_tail(files: Files, told: list[State]) -> Files:
    top = v2_checkpoint(told[CHECKPOINT], CHECKPOINT, form="parquet", sidecars=2)
    return _without(files | top, range(CHECKPOINT))


@dataclass(frozen=True)
class LogState:
    """What a log still holds.

    Attributes:
        shape: makes it of the commits.
        first: the oldest version that can be rebuilt.
        first_commit: the oldest commit that is there, one past the last where none is.
    """

    shape: Callable[[Files, list[State]], Files]
    first: int
    first_commit: int


LOG_STATES = [
    LogState(json_only, 0, 0),
    LogState(with_checksums, 0, 0),
    LogState(compacted, 0, 0),
    LogState(checkpoint_and_tail, CHECKPOINT, CHECKPOINT),
    LogState(parts_and_tail, CHECKPOINT, CHECKPOINT),
    LogState(v2_and_tail, CHECKPOINT, CHECKPOINT),
    LogState(checkpoint_without_its_commit, CHECKPOINT, CHECKPOINT + 1),
    LogState(checkpoint_of_the_last, LAST, LAST),
    LogState(checkpoint_only, LAST, LAST + 1),
]


@dataclass(frozen=True)
class Case:
    table: MemoryTable
    feature: Feature
    state: LogState
    told: list[State]

    def delta(self) -> DeltaTable:
        return self.table.delta()


@pytest.fixture(params=LOG_STATES, ids=lambda state: state.shape.__name__)
def log_state(request: pytest.FixtureRequest) -> LogState:
    return request.param


@pytest.fixture(params=list(FEATURES))
def case(request: pytest.FixtureRequest, log_state: LogState) -> Iterator[Case]:
    feature = FEATURES[request.param]
    actions = history(feature)
    told = states(actions)
    with MemoryTable(log_state.shape(commits(actions), told)) as table:
        set_times(table, feature)
        yield Case(table, feature, log_state, [state.visible() for state in told])


def set_times(table: MemoryTable, feature: Feature) -> None:
    for info in table.storage.walk("_delta_log"):
        # Where commits carry their time, that of their files must not matter.
        second = 0 if feature.in_commit else int(info.name[:20])
        table.storage.set_modified(info.path, START_MS + 1000 * second)


def test_every_version(case: Case) -> None:
    for version in range(LAST + 1):
        if version >= case.state.first:
            assert state_of(case.delta().snapshot(version=version)) == case.told[version]
        else:
            with pytest.raises(VersionNotFoundError, match=str(version)) as caught:
                case.delta().snapshot(version=version)
            assert (caught.value.earliest, caught.value.latest) == (case.state.first, LAST)
    with pytest.raises(VersionNotFoundError, match=str(LAST + 1)):
        case.delta().snapshot(version=LAST + 1)


def test_the_newest_version(case: Case) -> None:
    snapshot = case.delta().snapshot()
    assert (snapshot.version, case.delta().latest_version()) == (LAST, LAST)
    assert state_of(snapshot) == case.told[LAST]
    assert [field.name for field in snapshot.schema] == ["id", "part"]
    live = case.told[LAST].files.values()
    records = [9 if add["stats"] else None for add in live]
    hidden = sum((add["deletionVector"] or {}).get("cardinality", 0) for add in live)
    assert snapshot.num_rows == sum(records) - hidden
    assert sorted(snapshot.file_uris()) == sorted(f"{case.table.uri}/{a['path']}" for a in live)


def test_every_time(case: Case) -> None:
    first = max(case.state.first, case.state.first_commit)
    if first > LAST:
        with pytest.raises(VersionNotFoundError, match="commit file"):
            case.delta().version_at(START_MS)
        return
    for version in range(first, LAST + 1):
        at = START_MS + 1000 * version
        assert case.delta().version_at(at) == version
        if version < LAST:
            assert case.delta().version_at(at + 999) == version
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=at)
        snapshot = case.delta().snapshot(timestamp=moment)
        assert (snapshot.version, snapshot.timestamp) == (version, moment)
    for outside in (START_MS + 1000 * first - 1, START_MS + 1000 * LAST + 1):
        with pytest.raises(TimestampOutOfRangeError, match="no version belongs to") as raised:
            case.delta().version_at(outside)
        assert raised.value.timestamp_ms == outside


def test_history(case: Case) -> None:
    expected = [
        (version, f"WRITE {version}", START_MS + 1000 * version)
        for version in range(LAST, case.state.first_commit - 1, -1)
    ]
    told = [(i.version, i.operation, i.timestamp_ms) for i in case.delta().history()]
    assert told == expected
    assert [i.version for i in case.delta().history(limit=2)] == [v for v, _, _ in expected[:2]]


def test_a_checkpoint_of_every_version(case: Case) -> None:
    for version in range(case.state.first, LAST + 1):
        result = case.delta().checkpoint(version=version)
        assert result.version == version
        if result.written:
            assert result.num_files == len(case.told[version].files)
    case.table.storage.delete([commit_file(version) for version in range(LAST + 1)])
    for version in range(case.state.first, LAST + 1):
        assert state_of(case.delta().snapshot(version=version)) == case.told[version]


def test_a_commit_and_a_checkpoint_of_it(case: Case) -> None:
    protocol, domains = case.told[LAST].protocol, case.told[LAST].domains
    transaction = case.delta().transaction("WRITE")
    partition = next(iter(case.told[LAST].files.values()))["partitionValues"]
    transaction.add_file(AddFile("new", partition, 5, 1, data_change=True))
    transaction.set_transaction("matrix", 1)
    if case.feature.in_commit and case.state.first_commit > LAST:
        # A commit's time must be later than that of the one before, and that one is gone.
        with pytest.raises(VersionNotFoundError, match="its time"):
            transaction.commit()
        return
    assert transaction.commit().version == LAST + 1
    before = state_of(case.delta().snapshot())
    assert {path for path, _ in before.files} == {
        *(path for path, _ in case.told[LAST].files),
        "new",
    }
    assert (before.protocol, before.domains) == (protocol, domains)
    assert case.delta().checkpoint().written
    case.table.storage.delete([commit_file(version) for version in range(LAST + 2)])
    assert state_of(case.delta().snapshot()) == before
    assert case.delta().snapshot().transactions["matrix"].version == 1
