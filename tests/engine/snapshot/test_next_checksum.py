"""Checksums that are left behind: always right, never in the way, and nothing where in doubt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.version_checksum import VersionChecksum, read_checksum
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.snapshot import next_totals
from airflow_delta.engine.snapshot.next_checksum import leave_checksum
from airflow_delta.engine.snapshot.next_totals import FileTotals
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    states,
)

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1,
          "sizeInBytes": 40, "cardinality": 6}  # fmt: skip
FIRST: list[Action] = [
    protocol(set()),
    metadata(),
    add("a", size=100),
    add("b", size=20, deletionVector=VECTOR),
    {"txn": {"appId": "app", "version": 1}},
    {"domainMetadata": {"domain": "d", "configuration": "c", "removed": False}},
]


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    with MemoryTable(commits([FIRST])) as table:
        yield table


def file(path: str, size: int = 3, **fields: Any) -> AddFile:
    known = {
        "partition_values": {},
        "modification_time": 1,
        "data_change": True,
        "stats": '{"numRecords":9,"tightBounds":false}',
    }
    return AddFile(path=path, size=size, **{**known, **fields})


def gone(path: str, **fields: Any) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=1, **fields)


def commit(table: DeltaTable, *files: AddFile | RemoveFile, **txns: int) -> int:
    transaction = table.transaction("WRITE")
    for one in files:
        if isinstance(one, AddFile):
            transaction.add_file(one)
        else:
            transaction.remove_file(one)
    for app, version in txns.items():
        transaction.set_transaction(app, version)
    return transaction.commit().version


def left(table: MemoryTable, version: int) -> VersionChecksum:
    found = read_checksum(table.storage, version)
    assert found is not None
    result = table.delta().snapshot(version=version).verify()
    assert result.differences == ()
    return found


def test_a_new_table_has_one_from_the_beginning() -> None:
    with MemoryTable({}) as table:
        DeltaTable.create(table.uri, StructType((StructField("id", LONG),)), name="sales")
        recorded = left(table, 0)
        assert (recorded.num_files, recorded.table_size_bytes, recorded.set_transactions) == (
            0,
            0,
            (),
        )
        assert recorded.metadata is not None
        assert recorded.metadata.name == "sales"
        # Without the feature nobody expects a word on deletion vectors.
        assert "numDeletionVectorsOpt" not in json.loads(table.storage.read(checksum_path(0)))
        commit(table.delta(), file("x", 7))
        assert left(table, 1).table_size_bytes == 7


def test_what_a_commit_leaves_behind(table: MemoryTable) -> None:
    vector = DeletionVectorDescriptor.from_json(VECTOR, "")
    commit(table.delta(), file("c"), gone("b", deletion_vector=vector), app=2, other=5)
    recorded = left(table, 1)
    assert (recorded.num_files, recorded.table_size_bytes) == (2, 103)
    assert (recorded.num_deletion_vectors, recorded.num_deleted_records) == (0, 0)
    assert recorded.set_transactions is not None
    assert {txn.app_id: txn.version for txn in recorded.set_transactions} == {"app": 2, "other": 5}
    assert recorded.txn_id == table.delta().history(1)[0].txn_id
    assert recorded.in_commit_timestamp is None


@pytest.mark.parametrize("later", [False, True])
def test_in_commit_timestamps_are_told_where_the_table_has_them(later: bool) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    if later:
        properties |= {
            "delta.inCommitTimestampEnablementVersion": "0",
            "delta.inCommitTimestampEnablementTimestamp": "5",
        }
    info = {"commitInfo": {"inCommitTimestamp": 5, "timestamp": 5}}
    first = [info, protocol({"inCommitTimestamp"}), metadata(configuration=properties), add("a")]
    with MemoryTable(commits([first])) as table:
        commit(table.delta(), file("x"))
        assert left(table, 1).in_commit_timestamp == table.delta().snapshot().timestamp_ms


def test_transactions_that_expire_with_time_are_not_told() -> None:
    properties = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    with MemoryTable(commits([[PROTOCOL, metadata(configuration=properties)]])) as table:
        commit(table.delta(), app=1)
        assert left(table, 1).set_transactions is None


def test_many_transactions_and_domains_are_not_told() -> None:
    many: list[Action] = [{"txn": {"appId": f"{n}", "version": n}} for n in range(100)]
    with MemoryTable(commits([[*FIRST[:2], *many]])) as table:
        commit(table.delta(), **{"0": 2})
        recorded = left(table, 1).set_transactions
        assert recorded is not None
        assert len(recorded) == 100
        commit(table.delta(), more=2)
        assert left(table, 2).set_transactions is None


# Which totals.


def with_checkpoint(table: MemoryTable, **checksum: Any) -> DeltaTable:
    """The table with a checkpoint, its commit gone, and perhaps a checksum."""
    table.put(classic_checkpoint(states([FIRST])[0], 0))
    if checksum:
        table.storage.create(checksum_path(0), json.dumps(checksum).encode())
    return table.delta()


TOTALS = {"tableSizeBytes": 120, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
IN_FORCE = {"protocol": FIRST[0]["protocol"], "metadata": FIRST[1]["metaData"]}


def test_after_a_checkpoint_few_files_are_counted_once_more(table: MemoryTable) -> None:
    delta = with_checkpoint(table, **TOTALS)
    commit(delta, file("c"), gone("a", size=100))
    recorded = left(table, 1)
    assert (recorded.num_files, recorded.table_size_bytes) == (2, 23)
    assert (recorded.num_deletion_vectors, recorded.num_deleted_records) == (1, 6)
    assert recorded.domain_metadata is not None
    assert [domain.domain for domain in recorded.domain_metadata] == ["d"]
    commit(delta, file("d"))
    assert left(table, 2).num_files == 3


def test_without_a_checksum_before_a_large_table_gets_none(table: MemoryTable) -> None:
    version = commit(with_checkpoint(table), file("c"))
    assert read_checksum(table.storage, version) is None


# What can't be added to the totals before: what a commit takes away, or brings in again.
CHANGES: dict[str, tuple[list[AddFile | RemoveFile], tuple[int, int]]] = {
    "a remove without a size": ([gone("a")], (1, 20)),
    "new statistics for a live file": ([file("a", 5, data_change=False)], (2, 25)),
    "a live file again": ([file("a", 5)], (2, 25)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_files_are_counted_and_not_added_up(
    table: MemoryTable, change: str, checkpoint: bool
) -> None:
    files, expected = CHANGES[change]
    version = commit(with_checkpoint(table, **TOTALS) if checkpoint else table.delta(), *files)
    recorded = left(table, version)
    assert (recorded.num_files, recorded.table_size_bytes) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_large_table_gets_none_until_the_next_checkpoint(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(next_totals, "FEW", 1)
    files, expected = CHANGES[change]
    delta = with_checkpoint(table, **TOTALS, **IN_FORCE)
    version = commit(delta, *files)
    assert read_checksum(table.storage, version) is None
    assert delta.checkpoint().written
    recorded = left(table, version)
    assert (recorded.num_files, recorded.table_size_bytes) == expected


# Never in the way.


class Watched(FaultyStorage):
    """Another writer leaves a checksum of our commit before we do."""

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        if path == commit_file(1):
            info = json.loads(data.splitlines()[0])["commitInfo"]
            theirs = {"tableSizeBytes": 123, "numFiles": 3, "numMetadata": 1, "numProtocol": 1}
            recorded = json.dumps({**theirs, "txnId": info["txnId"], "theirs": True})
            self.inner.create(checksum_path(1), recorded.encode())


def test_an_existing_checksum_of_the_commit_is_kept(table: MemoryTable) -> None:
    delta = table.delta()
    delta.__dict__["storage"] = Watched(table.storage)
    commit(delta, file("c"))
    assert json.loads(table.storage.read(checksum_path(1)))["theirs"]


STALE = {"tableSizeBytes": 9, "numFiles": 9, "numMetadata": 1, "numProtocol": 1}


@pytest.mark.parametrize(
    "there", ["{}", "{broken", json.dumps(STALE), json.dumps({**STALE, "txnId": "another"})]
)
def test_one_of_a_version_that_was_taken_back_is_replaced(table: MemoryTable, there: str) -> None:
    table.storage.create(checksum_path(1), there.encode())
    commit(table.delta(), file("c"))
    recorded = left(table, 1)
    assert (recorded.num_files, recorded.table_size_bytes) == (3, 123)


@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_ANSWER])
def test_a_failure_is_no_more_than_a_warning(table: MemoryTable, how: How) -> None:
    delta = table.delta()
    delta.__dict__["storage"] = FaultyStorage(table.storage, Fault("create", 0, how, suffix=".crc"))
    with pytest.warns(DeltaWarning, match=r"version 1 is there, but its version checksum"):
        assert commit(delta, file("c")) == 1
    assert table.delta().snapshot().version == 1


def test_a_damaged_checksum_before_is_no_more_than_a_warning(table: MemoryTable) -> None:
    delta = with_checkpoint(table, nothing=1)
    with pytest.warns(DeltaWarning, match="delete it"):
        assert commit(delta, file("c")) == 1
    assert read_checksum(table.storage, 1) is None


def test_a_commit_after_others_were_faster(table: MemoryTable) -> None:
    slow = table.delta().transaction("WRITE")
    slow.add_file(file("slow", 1000))
    assert commit(table.delta(), file("fast", 4)) == 1
    assert slow.commit().version == 2
    assert left(table, 2).table_size_bytes == 1124


# After a checkpoint.


def test_what_a_checkpoint_leaves_behind(table: MemoryTable) -> None:
    assert leave_checksum(table.delta().snapshot(), FileTotals(2, 120, None, None))
    recorded = left(table, 0)
    assert (recorded.num_files, recorded.table_size_bytes) == (2, 120)
    assert recorded.num_deletion_vectors is None
    assert not leave_checksum(table.delta().snapshot(), FileTotals(9, 9))


def test_the_checksum_of_a_checkpoint_has_what_the_commit_says() -> None:
    info = {"commitInfo": {"inCommitTimestamp": 5, "timestamp": 5, "txnId": "some"}}
    properties = {"delta.enableInCommitTimestamps": "true"}
    first = [info, protocol({"inCommitTimestamp"}), metadata(configuration=properties)]
    with MemoryTable(commits([first])) as table:
        assert leave_checksum(table.delta().snapshot(), FileTotals())
        recorded = left(table, 0)
        assert (recorded.in_commit_timestamp, recorded.txn_id) == (5, "some")
    with MemoryTable(commits([first[1:]])) as table:
        # The timestamp is unknown, and a checksum without it would say that there is none.
        assert not leave_checksum(table.delta().snapshot(), FileTotals())


def test_a_version_whose_commit_is_gone_gets_none(table: MemoryTable) -> None:
    delta = with_checkpoint(table)
    table.storage.delete([commit_file(0)])
    assert not leave_checksum(delta.snapshot(), FileTotals(2, 120))
    assert read_checksum(table.storage, 0) is None


# Always right.


@st.composite
def changes(draw: st.DrawFn, live: dict[str, int | None]) -> list[AddFile | RemoveFile]:
    """A commit over some paths; ``live`` maps each to the number of its deletion vector, or None."""
    files: list[AddFile | RemoveFile] = []
    for path in draw(st.sets(st.sampled_from("abcde"), min_size=1)):
        vector = vector_of(live.get(path))
        kind = draw(st.sampled_from(["remove", "vector", "again"])) if path in live else "new"
        known = {"size": 5} if draw(st.booleans()) else {}
        if kind in ("remove", "vector"):
            files.append(gone(path, deletion_vector=vector, **known))
            number = live.pop(path)
        if kind == "vector":
            live[path] = (number or 0) + 1
            files.append(file(path, 5, deletion_vector=vector_of(live[path])))
        if kind == "again":
            files.append(file(path, 5, deletion_vector=vector, data_change=draw(st.booleans())))
        if kind == "new":
            live[path] = draw(st.sampled_from([None, 1]))
            files.append(file(path, 5, deletion_vector=vector_of(live[path])))
    return files


def vector_of(number: int | None) -> DeletionVectorDescriptor | None:
    if number is None:
        return None
    return DeletionVectorDescriptor.from_json(
        {**VECTOR, "offset": number, "cardinality": number}, ""
    )


@settings(max_examples=25)
@given(st.data())
def test_checksums_agree_with_the_log(data: st.DataObject) -> None:
    """Whatever is committed, and whether a checkpoint comes in between."""
    live: dict[str, int | None] = {}
    properties = {"delta.enableDeletionVectors": "true"}
    first = [protocol(set()), metadata(configuration=properties)]
    with MemoryTable(commits([first])) as table:
        for version in range(1, data.draw(st.integers(2, 6))):
            assert commit(table.delta(), *data.draw(changes(live)), app=version) == version
            recorded = left(table, version)
            assert recorded.num_files == len(live)
            if data.draw(st.integers(0, 3)) == 0:
                table.delta().checkpoint()
