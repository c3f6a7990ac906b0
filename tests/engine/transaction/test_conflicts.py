"""What gets in the way of a commit: each cell of the table of conflicts, and a serial model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
)
from airflow_delta.engine.model.actions import Metadata, Protocol, Txn
from airflow_delta.engine.model.schema import DATE, LONG, STRING, StructField, StructType
from airflow_delta.engine.transaction.conflicts import CurrentCommit, check_conflicts
from airflow_delta.engine.transaction.isolation import IsolationLevel
from airflow_delta.engine.transaction.reads import Reads
from airflow_delta.engine.transaction.staged import Actions
from airflow_delta.engine.transaction.winning_commits import load_concurrent_commits
from tests.log_builder import SCHEMA, add, commit_path, metadata, remove, write_commit

FEATURES = ["appendOnly", "invariants", "domainMetadata", "rowTracking", "deletionVectors"]
FILES = {"a": {"part": "a"}, "b": {"part": "b"}}
Mine = Callable[[OptimisticTransaction], object]


def protocol(*features: str, reader: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A ``protocol`` action that lists features."""
    action: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": sorted(features),
    }
    if reader is not None:
        action |= {"minReaderVersion": 3, "readerFeatures": sorted(reader)}
    return {"protocol": action}


READERS = ("deletionVectors", "columnMapping", "v2Checkpoint", "timestampNtz")


def listing(*features: str) -> dict[str, Any]:
    """The protocol with all that the tests' table has, and more."""
    listed = {*FEATURES, *features}
    return protocol(
        *listed, reader=tuple(listed & {*READERS, "vacuumProtocolCheck", "typeWidening"})
    )


CONFIGURATION = {"delta.enableRowTracking": "false", "user": "x"}


def table_of(root: Path, **options: Any) -> DeltaTable:
    """A table with the files ``a`` and ``b`` in the partitions of their names."""
    options.setdefault("partition_columns", ["part"])
    options.setdefault("configuration", CONFIGURATION)
    files = [add(name, partitionValues=values, baseRowId=n, defaultRowCommitVersion=0)
             for n, (name, values) in enumerate(FILES.items())]  # fmt: skip
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":9}'}
    domains = [{"domainMetadata": {**mark, "removed": False}}]
    write_commit(root, 0, options.pop("protocol", listing()), metadata(**options), *domains, *files)
    return DeltaTable(str(root))


def file(path: str, part: str = "a", **options: Any) -> AddFile:
    options = {"data_change": True, "stats": '{"numRecords":1}', **options}
    return AddFile(path, {"part": part}, 1, 1, **options)


def tombstone(path: str, **options: Any) -> RemoveFile:
    return RemoveFile(path, **{"data_change": True, "deletion_timestamp": 1, **options})


def info(**fields: Any) -> dict[str, Any]:
    return {"commitInfo": {"operation": "THEIRS", **fields}}


BLIND = info(isBlindAppend=True)


def append(txn: OptimisticTransaction) -> None:
    txn.add_file(file("mine"))


def read_a(txn: OptimisticTransaction) -> None:
    txn.read_files(pc.field("part") == "a")
    append(txn)


def read_all(txn: OptimisticTransaction) -> None:
    txn.read_files()
    append(txn)


def read_table(txn: OptimisticTransaction) -> None:
    txn.read_table()
    append(txn)


def compact(txn: OptimisticTransaction) -> None:
    """Rewrite what was read, without changing data."""
    txn.read_files(pc.field("part") == "a")
    txn.remove_file(tombstone("a", data_change=False))
    txn.add_file(file("mine", data_change=False))


def set_metadata(txn: OptimisticTransaction) -> None:
    assert txn.snapshot
    old = txn.snapshot.metadata
    txn.set_metadata(
        Metadata.from_json({**old.to_json(), "description": "mine"}, "the test's metadata")
    )


def read_and_set_metadata(txn: OptimisticTransaction) -> None:
    read_a(txn)
    set_metadata(txn)


def set_protocol(txn: OptimisticTransaction) -> None:
    txn.set_protocol(Protocol.from_json(listing("inCommitTimestamp")["protocol"], "the test's"))


def judge(
    table: DeltaTable, root: Path, mine: Mine, theirs: list[dict], error: type[Exception] | None
) -> None:
    """Stage mine, have theirs win version 1, and see what becomes of the commit."""
    txn = table.transaction("WRITE")
    mine(txn)
    write_commit(root, 1, *theirs)
    if error is None:
        assert txn.commit().version == 2
        return
    with pytest.raises(CommitConflictError, match="version 1") as caught:
        txn.commit()
    assert type(caught.value) is error
    assert caught.value.version == 1
    assert not commit_path(root, 2).exists()


# Protocol


def legacy(*, reader: int = 1, writer: int = 2) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}


@pytest.mark.parametrize(
    "added",
    [
        ("changeDataFeed",),
        ("columnMapping",),
        ("timestampNtz",),
        ("v2Checkpoint",),
        ("inCommitTimestamp",),
        ("vacuumProtocolCheck",),
        ("typeWidening",),
        ("columnMapping", "icebergCompatV1"),
        ("columnMapping", "icebergCompatV2"),
    ],
)
def test_an_upgrade_that_asks_nothing_of_a_commit_is_followed(
    tmp_path: Path, added: tuple[str, ...]
) -> None:
    judge(table_of(tmp_path), tmp_path, append, [listing(*added)], None)


@pytest.mark.parametrize(
    "features",
    [["domainMetadata"], ["rowTracking", "domainMetadata"], ["appendOnly"], ["deletionVectors"]],
)
def test_so_is_one_to_what_the_table_of_the_other_tests_has(
    tmp_path: Path, features: list[str]
) -> None:
    table = table_of(tmp_path, protocol=protocol())
    readers = tuple({*features} & {*READERS})
    judge(table, tmp_path, append, [protocol(*features, reader=readers)], None)


def test_the_same_protocol_again_changes_nothing(tmp_path: Path) -> None:
    judge(table_of(tmp_path), tmp_path, append, [listing()], None)


@pytest.mark.parametrize(
    "added",
    [
        "checkConstraints",
        "generatedColumns",
        "identityColumns",
        "clustering",
        "allowColumnDefaults",
    ],
)
def test_an_upgrade_that_binds_commits_is_a_conflict(tmp_path: Path, added: str) -> None:
    judge(table_of(tmp_path), tmp_path, append, [listing(added)], ProtocolChangedError)


def test_an_upgrade_to_what_the_engine_lacks_is_a_conflict(tmp_path: Path) -> None:
    judge(table_of(tmp_path), tmp_path, append, [listing("novelty")], ProtocolChangedError)


def test_an_upgrade_to_what_the_engine_cannot_read_is_a_conflict(tmp_path: Path) -> None:
    unreadable = protocol(*FEATURES, "novelty", reader=("deletionVectors", "novelty"))
    judge(table_of(tmp_path), tmp_path, append, [unreadable], ProtocolChangedError)


@pytest.mark.parametrize("mine", [append, set_protocol, read_a, set_metadata])
def test_a_downgrade_is_a_conflict_for_everybody(tmp_path: Path, mine: Mine) -> None:
    fewer = protocol("appendOnly", "invariants", "domainMetadata", "rowTracking")
    judge(table_of(tmp_path), tmp_path, mine, [fewer], ProtocolChangedError)


def test_a_downgrade_between_legacy_versions_is_one_too(tmp_path: Path) -> None:
    table = table_of(tmp_path, protocol=legacy(writer=4))
    judge(table, tmp_path, append, [legacy(writer=2)], ProtocolChangedError)


def test_two_changes_of_the_protocol_conflict(tmp_path: Path) -> None:
    judge(
        table_of(tmp_path), tmp_path, set_protocol, [listing("v2Checkpoint")], ProtocolChangedError
    )


def test_a_change_of_the_protocol_follows_on_other_commits(tmp_path: Path) -> None:
    judge(
        table_of(tmp_path), tmp_path, set_protocol, [add("x", partitionValues={"part": "a"})], None
    )


def test_each_winner_is_compared_with_the_one_before_it(tmp_path: Path) -> None:
    """A feature that one winner added and the next one dropped was never there before."""
    txn = table_of(tmp_path).transaction("WRITE")
    append(txn)
    write_commit(tmp_path, 1, listing("v2Checkpoint"))
    write_commit(tmp_path, 2, listing())
    with pytest.raises(ProtocolChangedError, match=r"version 2 .*dropped the features \['v2Check"):
        txn.commit()


# Metadata


def changed(schema: dict[str, Any] = SCHEMA, **configuration: str | None) -> dict[str, Any]:
    """The table's metadata with other properties; None removes one."""
    names = {name.replace("_", "."): value for name, value in configuration.items()}
    kept = {name: value for name, value in {**CONFIGURATION, **names}.items() if value is not None}
    return metadata(partition_columns=["part"], configuration=kept, schema=schema)


def field(name: str, type_: Any = "long", **metadata: Any) -> dict[str, Any]:
    keys = {f"delta.columnMapping.{key}": value for key, value in metadata.items()}
    return {"name": name, "type": type_, "nullable": True, "metadata": keys}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


MAPPED = struct(
    field("id", id=1, physicalName="id"), field("part", "string", id=2, physicalName="part")
)
NAME = {"delta_columnMapping_mode": "name", "delta_columnMapping_maxColumnId": "2"}
ROW_TRACKING = {
    "delta_enableRowTracking": "true",
    "delta_rowTracking_materializedRowIdColumnName": "_row-id",
    "delta_rowTracking_materializedRowCommitVersionColumnName": "_row-version",
}
TIMESTAMPS = {
    "delta_enableInCommitTimestamps": "true",
    "delta_inCommitTimestampEnablementVersion": "1",
    "delta_inCommitTimestampEnablementTimestamp": "5",
}

ADOPTED = {
    "nothing": [changed()],
    "row tracking on": [changed(**ROW_TRACKING)],
    "deletion vectors on": [changed(delta_enableDeletionVectors="true")],
    "V2 checkpoints": [listing("v2Checkpoint"), changed(delta_checkpointPolicy="v2")],
    "in-commit timestamps on": [
        info(inCommitTimestamp=5),
        listing("inCommitTimestamp"),
        changed(**TIMESTAMPS),
    ],
    "column mapping by name": [listing("columnMapping"), changed(MAPPED, **NAME)],
    "a catalog's identifier": [changed(io_unitycatalog_tableId="1")],
    "identity marks": [
        info(tags={"delta.identity.schemaUpdate": "true"}),
        changed(struct(*SCHEMA["fields"], field("more"))),
    ],
}


@pytest.mark.parametrize("theirs", ADOPTED.values(), ids=ADOPTED)
@pytest.mark.parametrize("mine", [append, compact])
def test_a_change_that_commits_can_follow_is_adopted(
    tmp_path: Path, mine: Mine, theirs: list[dict]
) -> None:
    judge(table_of(tmp_path), tmp_path, mine, theirs, None)
    assert "metaData" not in commit_path(tmp_path, 2).read_text(encoding="utf-8")


@pytest.mark.parametrize("theirs", ADOPTED.values(), ids=ADOPTED)
def test_two_changes_of_the_metadata_conflict_even_so(tmp_path: Path, theirs: list[dict]) -> None:
    judge(table_of(tmp_path), tmp_path, set_metadata, theirs, MetadataChangedError)


REFUSED = {
    "a user's property": [changed(user="y")],
    "a removed property": [changed(user=None)],
    "append-only": [changed(delta_appendOnly="true")],
    "row tracking off, spelt anew": [changed(delta_enableRowTracking="False")],
    "names without row tracking": [
        changed(delta_rowTracking_materializedRowIdColumnName="_row-id")
    ],
    "classic checkpoints": [changed(delta_checkpointPolicy="classic")],
    "V2 checkpoints without the feature": [changed(delta_checkpointPolicy="v2")],
    "column mapping without the feature": [changed(MAPPED, **NAME)],
    "column mapping by id": [
        listing("columnMapping"),
        changed(MAPPED, **{**NAME, "delta_columnMapping_mode": "id"}),
    ],
    "another column": [changed(struct(*SCHEMA["fields"], field("more")))],
    "another column with mapping": [
        listing("columnMapping"),
        changed(struct(*MAPPED["fields"], field("more", id=3, physicalName="more")), **NAME),
    ],
    "a tag that says no": [
        info(tags={"delta.identity.schemaUpdate": "false"}),
        changed(struct(*SCHEMA["fields"], field("more"))),
    ],
}


@pytest.mark.parametrize("was_on", [False, True])
def test_rows_that_were_copied_before_row_tracking_was_turned_on_have_not_kept_their_ids(
    tmp_path: Path, was_on: bool
) -> None:
    enabled = {name.replace("_", "."): value for name, value in ROW_TRACKING.items()}
    table = table_of(tmp_path, configuration=CONFIGURATION | (enabled if was_on else {}))
    transaction = table.transaction("UPDATE", enforces=["rowTracking"])
    transaction.add_file(file("copied"))
    transaction.remove_file(tombstone("a", partition_values={"part": "a"}))
    write_commit(tmp_path, 1, info(), changed(**ROW_TRACKING))
    transaction.commit()
    (version, *_) = table.history()
    assert version.raw["tags"] == {"delta.rowTracking.preserved": "true" if was_on else "false"}


@pytest.mark.parametrize("theirs", REFUSED.values(), ids=REFUSED)
def test_any_other_change_of_the_metadata_is_a_conflict(tmp_path: Path, theirs: list[dict]) -> None:
    judge(table_of(tmp_path), tmp_path, append, theirs, MetadataChangedError)


@pytest.mark.parametrize(
    "different", [{"description": "d"}, {"name": "n"}, {"partitionColumns": []}, {"id": "other"}]
)
def test_so_is_a_change_of_what_is_no_configuration(tmp_path: Path, different: dict) -> None:
    theirs = {"metaData": {**changed()["metaData"], **different}}
    judge(table_of(tmp_path), tmp_path, append, [theirs], MetadataChangedError)


def test_column_mapping_reaches_into_structs(tmp_path: Path) -> None:
    inner = struct(field("x"))
    table = table_of(tmp_path, schema=struct(*SCHEMA["fields"], field("s", inner)))
    mapped = struct(field("x", id=4, physicalName="x"))
    theirs = struct(*MAPPED["fields"], field("s", mapped, id=3, physicalName="s"))
    judge(table, tmp_path, append, [listing("columnMapping"), changed(theirs, **NAME)], None)


def test_a_commit_takes_its_time_where_a_winner_turned_timestamps_on(tmp_path: Path) -> None:
    far = 10**14
    theirs = [info(inCommitTimestamp=far), *ADOPTED["in-commit timestamps on"][1:]]
    judge(table_of(tmp_path), tmp_path, append, theirs, None)
    first = commit_path(tmp_path, 2).read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["commitInfo"]["inCommitTimestamp"] == far + 1


# Domains and transactions


def domain(name: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}


@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        (lambda t: t.set_domain("d", "1"), domain("d"), ConcurrentTransactionError),
        (lambda t: t.set_domain("d", "1"), domain("d", removed=True), ConcurrentTransactionError),
        (lambda t: t.set_domain("d", "1"), domain("e"), None),
        (lambda t: (t.read_domain("d"), append(t)), domain("d"), ConcurrentTransactionError),
        (lambda t: (t.read_domain("d"), append(t)), domain("e"), None),
        (append, domain("d"), None),
        (lambda t: (t.read_domain("delta.rowTracking"), append(t)), domain("delta.rowTracking"),
         ConcurrentTransactionError),
    ],
)  # fmt: skip
def test_domains(tmp_path: Path, mine: Mine, theirs: dict, error: type[Exception] | None) -> None:
    judge(table_of(tmp_path), tmp_path, mine, [theirs], error)


def test_the_marks_of_row_ids_are_merged(tmp_path: Path) -> None:
    """Both commits set the domain; ours counts on from theirs."""
    theirs = [
        {"domainMetadata": {"domain": "delta.rowTracking", "removed": False,
                            "configuration": '{"rowIdHighWaterMark":41}'}},
        add("theirs", partitionValues={"part": "b"}, baseRowId=10, defaultRowCommitVersion=1),
    ]  # fmt: skip
    judge(table_of(tmp_path), tmp_path, append, theirs, None)
    text = commit_path(tmp_path, 2).read_text(encoding="utf-8")
    mine = [json.loads(line)["add"] for line in text.splitlines() if '"add"' in line]
    assert [(each["baseRowId"], each["defaultRowCommitVersion"]) for each in mine] == [(42, 2)]


def txn_of(app: str) -> dict[str, Any]:
    return {"txn": {"appId": app, "version": 1}}


@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        (lambda t: (t.transaction_version("app"), append(t)), "app", ConcurrentTransactionError),
        (lambda t: (t.transaction_version("app"), append(t)), "other", None),
        (lambda t: t.set_transaction("app", 2), "app", ConcurrentTransactionError),
        (lambda t: t.set_transaction("app", 2), "other", None),
        (append, "app", None),
    ],
)
def test_transactions(
    tmp_path: Path, mine: Mine, theirs: str, error: type[Exception] | None
) -> None:
    judge(table_of(tmp_path), tmp_path, mine, [txn_of(theirs)], error)


def test_a_transaction_that_is_merely_written_is_no_conflict(tmp_path: Path) -> None:
    """The rule itself needs lookups: `set_transaction` counts as one."""
    base = table_of(tmp_path).snapshot()
    write_commit(tmp_path, 1, txn_of("app"))
    (winner,) = load_concurrent_commits(base).parsed_commits
    actions = Actions(transactions=(Txn("app", 2),))
    check_conflicts(CurrentCommit(base, actions, Reads(), IsolationLevel.SERIALIZABLE), winner)
    with pytest.raises(ConcurrentTransactionError, match="application 'app'"):
        check_conflicts(
            CurrentCommit(base, actions, Reads(app_ids={"app"}), IsolationLevel.SERIALIZABLE),
            winner,
        )


# Files that were added


def added(part: str = "a", **fields: Any) -> dict[str, Any]:
    return add("theirs", partitionValues={"part": part}, **fields)


LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "says", [BLIND, info(isBlindAppend=False), info()], ids=["blind", "no", "?"]
)
@pytest.mark.parametrize(
    "mine", [append, read_a, read_all, read_table, read_and_set_metadata, compact]
)
def test_added_files(tmp_path: Path, level: str, says: dict, mine: Mine) -> None:
    table = table_of(tmp_path, configuration={**CONFIGURATION, "delta.isolationLevel": level})
    blind = says is BLIND
    at = "SnapshotIsolation" if mine is compact else level
    matters = {
        "Serializable": True,
        "WriteSerializable": not blind or mine is read_and_set_metadata,
        "SnapshotIsolation": mine is read_and_set_metadata,
    }[at]
    error = ConcurrentAppendError if matters and mine is not append else None
    judge(table, tmp_path, mine, [says, added()], error)


@pytest.mark.parametrize(
    ("predicate", "part", "conflict"),
    [
        (pc.field("part") == "a", "a", True),
        (pc.field("part") == "a", "b", False),
        (pc.field("part") == "a", None, False),
        (pc.field("part").is_null(), None, True),
        ((pc.field("part") == "a") & (pc.field("id") > 5), "b", False),
        # Statistics say that no row of the file matches; its partition counts all the same.
        ((pc.field("part") == "a") & (pc.field("id") > 5), "a", True),
        ((pc.field("part") == "a") | (pc.field("id") > 5), "b", True),
        (pc.field("id") > 5, "b", True),
        (pc.utf8_upper(pc.field("part")) == "A", "a", True),
        (None, "b", True),
    ],
)
def test_reads_are_compared_by_partition_values(
    tmp_path: Path, predicate: Any, part: str | None, conflict: bool
) -> None:
    def mine(txn: OptimisticTransaction) -> None:
        txn.read_files(predicate, columns=["size"])
        append(txn)

    statistics = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'
    theirs = add("theirs", partitionValues={"part": part}, stats=statistics)
    error = ConcurrentAppendError if conflict else None
    judge(table_of(tmp_path), tmp_path, mine, [theirs], error)


def test_a_list_of_times_reads_the_partition_of_their_date(tmp_path: Path) -> None:
    """As the scan does: pyarrow converts the list to the type of the column."""
    columns = StructType((StructField("part", DATE), StructField("id", LONG)))
    table = DeltaTable.create(str(tmp_path), columns, partition_by=["part"])
    txn = table.transaction("WRITE")
    noon = pa.array([datetime(2024, 1, 3, 12)], pa.timestamp("us"))
    txn.read_files(pc.field("part").isin(noon) & (pc.field("id") > 5))
    txn.add_file(file("mine", "2024-01-04"))
    write_commit(tmp_path, 1, add("theirs", partitionValues={"part": "2024-01-03"}))
    with pytest.raises(ConcurrentAppendError, match="'theirs'"):
        txn.commit()


def test_without_partitions_any_added_file_counts(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol(), metadata(), add("a"))
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.read_files(pc.field("id") == 1)
    txn.add_file(AddFile("mine", {}, 1, 1, data_change=True))
    write_commit(tmp_path, 1, add("theirs", stats='{"numRecords":1,"minValues":{"id":9}}'))
    with pytest.raises(ConcurrentAppendError, match="'theirs'"):
        txn.commit()


def test_a_rearrangement_counts_like_an_append(tmp_path: Path) -> None:
    judge(table_of(tmp_path), tmp_path, read_a, [added(dataChange=False)], ConcurrentAppendError)


@pytest.mark.parametrize("level", LEVELS)
def test_of_two_that_add_one_path_one_does(tmp_path: Path, level: str) -> None:
    """They are two files of one name: the table would have the rows of one and the word of the other."""
    table = table_of(tmp_path, configuration={**CONFIGURATION, "delta.isolationLevel": level})
    theirs = add("mine", partitionValues={"part": "b"}, size=9)

    def mine(txn: OptimisticTransaction) -> None:
        txn.add_file(file("mine"))

    judge(table, tmp_path, mine, [BLIND, theirs], ConcurrentAppendError)


def test_a_path_may_be_spelt_in_two_ways(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol(), metadata())
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(AddFile("/x/p%40q", {}, 1, 1, data_change=True))
    write_commit(tmp_path, 1, add("file:///x/p@q"))
    with pytest.raises(ConcurrentAppendError, match="which is added here too"):
        txn.commit()


@pytest.mark.parametrize("operation", ["COMPUTE STATS", "ROW TRACKING BACKFILL"])
@pytest.mark.parametrize("data_change", [False, True])
def test_of_two_that_add_a_live_file_again_the_second_would_undo_the_first(
    tmp_path: Path, operation: str, data_change: bool
) -> None:
    theirs = add("a", partitionValues={"part": "a"}, dataChange=False, baseRowId=0,
                 defaultRowCommitVersion=0, stats='{"numRecords":3}')  # fmt: skip

    def mine(txn: OptimisticTransaction) -> None:
        txn.add_file(file("a", data_change=data_change, stats='{"numRecords":2}'))

    # Row ids are copied from the live file by each attempt, so a commit that changes data keeps them.
    follows = data_change and operation == "ROW TRACKING BACKFILL"
    error = None if follows else ConcurrentAppendError
    judge(table_of(tmp_path), tmp_path, mine, [info(operation=operation), theirs], error)


def test_one_of_several_reads_is_enough(tmp_path: Path) -> None:
    def mine(txn: OptimisticTransaction) -> None:
        txn.read_files(pc.field("part") == "a")
        txn.read_files(pc.field("part") == "b")
        append(txn)

    judge(table_of(tmp_path), tmp_path, mine, [added("b")], ConcurrentAppendError)


def test_giving_ids_to_files_adds_none(tmp_path: Path) -> None:
    backfill = {"commitInfo": {"operation": "ROW TRACKING BACKFILL"}}
    again = add("a", partitionValues={"part": "a"}, dataChange=False, baseRowId=5)
    judge(table_of(tmp_path), tmp_path, read_a, [backfill, again], None)


# Files that were removed


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        (append, "a", None),
        (read_a, "a", ConcurrentDeleteReadError),
        (read_a, "b", None),
        (read_all, "b", ConcurrentDeleteReadError),
        (read_table, "b", ConcurrentDeleteReadError),
        (compact, "a", ConcurrentDeleteReadError),
        (lambda t: t.remove_file(tombstone("a")), "a", ConcurrentDeleteDeleteError),
        (lambda t: t.remove_file(tombstone("a")), "b", None),
        (lambda t: t.add_file(file("a", stats='{"numRecords":2}')), "a", ConcurrentDeleteReadError),
        (lambda t: t.add_file(file("a", stats='{"numRecords":2}')), "b", None),
    ],
)
def test_removed_files(
    tmp_path: Path, level: str, mine: Mine, theirs: str, error: type[Exception] | None
) -> None:
    table = table_of(tmp_path, configuration={**CONFIGURATION, "delta.isolationLevel": level})
    judge(table, tmp_path, mine, [remove(theirs)], error)


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
          "sizeInBytes": 40, "cardinality": 6}  # fmt: skip


def test_another_deletion_vector_makes_no_other_file(tmp_path: Path) -> None:
    theirs = [remove("a"), add("a", partitionValues={"part": "a"}, deletionVector=VECTOR)]
    mine = [lambda t: t.remove_file(tombstone("a")), compact]
    errors = [ConcurrentDeleteDeleteError, ConcurrentDeleteReadError]
    for number, (each, error) in enumerate(zip(mine, errors, strict=True)):
        root = tmp_path / str(number)
        judge(table_of(root), root, each, theirs, error)


def test_one_file_has_many_spellings(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol(), metadata(), add("file:///x/p@q"))
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.read_files()
    txn.add_file(AddFile("mine", {}, 1, 1, data_change=True))
    write_commit(tmp_path, 1, remove("/x/p%40q"))
    with pytest.raises(ConcurrentDeleteReadError, match="/x/p%40q"):
        txn.commit()


# Order


def test_the_error_names_the_first_conflicting_winner(tmp_path: Path) -> None:
    txn = table_of(tmp_path).transaction("WRITE")
    read_a(txn)
    write_commit(tmp_path, 1, added("b"))
    write_commit(tmp_path, 2, remove("a"))
    write_commit(tmp_path, 3, changed(user="y"))
    with pytest.raises(ConcurrentDeleteReadError, match="version 2"):
        txn.commit()


def test_of_several_conflicts_with_one_winner_the_first_rule_decides(tmp_path: Path) -> None:
    theirs = [listing("clustering"), changed(user="y"), added(), remove("a")]
    order = [
        (theirs, ProtocolChangedError),
        (theirs[1:], MetadataChangedError),
        (theirs[2:], ConcurrentAppendError),
        (theirs[3:], ConcurrentDeleteReadError),
    ]
    for number, (actions, error) in enumerate(order):
        root = tmp_path / str(number)
        judge(table_of(root), root, compact_changing_data, actions, error)


def compact_changing_data(txn: OptimisticTransaction) -> None:
    txn.read_files(pc.field("part") == "a")
    txn.remove_file(tombstone("a"))


# A serial model


PARTS = ("a", "b", "c")
MODEL_SCHEMA = StructType((StructField("id", LONG), StructField("part", STRING)))


@pytest.mark.parametrize("seed", range(60))
def test_a_commit_is_made_just_when_its_order_does_not_show(tmp_path: Path, seed: int) -> None:
    """Two random transactions side by side, as if one had come after the other.

    The second one may commit if and only if it would have read the same, and would find what it
    removes, had it begun after the first.
    """
    chance = random.Random(seed)
    table = DeltaTable.create(str(tmp_path), MODEL_SCHEMA, partition_by=["part"])
    files = {f"f{n}": chance.choice(PARTS) for n in range(6)}
    first = table.transaction("WRITE")
    first.add_files([file(path, part) for path, part in files.items()])
    first.commit()

    current, winner = table.transaction("WRITE"), table.transaction("WRITE")
    read = set(chance.sample(PARTS, chance.randint(0, 3)))
    for part in sorted(read):
        found = current.read_files(pc.field("part") == part, columns=["path"])["path"].to_pylist()
        assert set(found) == {path for path in files if files[path] == part}
    mine = set(chance.sample(sorted(files), chance.randint(0, 2)))
    for path in sorted(mine):
        current.remove_file(tombstone(path))
    current.add_file(file("mine", chance.choice(PARTS)))

    gone = set(chance.sample(sorted(files), chance.randint(0, 2)))
    new = {f"n{n}": chance.choice(PARTS) for n in range(chance.randint(0, 2))}
    for path in sorted(gone):
        winner.remove_file(tombstone(path))
    winner.add_files([file(path, part) for path, part in new.items()])
    if gone or new:
        winner.commit()

    after = {path: part for path, part in {**files, **new}.items() if path not in gone}
    same = all(
        {p for p in files if files[p] == part} == {p for p in after if after[p] == part}
        for part in read
    )
    if same and mine <= after.keys():
        current.commit()
        live = table.snapshot().files(columns=["path"])["path"].to_pylist()
        assert sorted(live) == sorted((after.keys() - mine) | {"mine"})
    else:
        with pytest.raises(CommitConflictError):
            current.commit()
