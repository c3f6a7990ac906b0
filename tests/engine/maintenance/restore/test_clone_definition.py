"""What a clone takes over from its source, and what belongs to one table alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction, Snapshot
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.restore.clone_definition import stage_clone_definition
from airflow_delta.engine.transaction.intent import CloneVersion
from tests.engine.transaction.prepare.attempts import mapped, protocol, schema
from tests.log_builder import metadata, write_commit

MARK = "delta.identity.highWaterMark"
IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": True,
}
BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"
TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}
BEGAN = "delta.inCommitTimestampEnablementVersion"
HIDDEN = "delta.rowTracking.materializedRowIdColumnName"
MAX_ID = "delta.columnMapping.maxColumnId"


def domain(name: str, configuration: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": False}}


def clustered(*columns: str) -> dict[str, Any]:
    configuration = {
        "clusteringColumns": [[column] for column in columns],
        "domainName": "delta.clustering",
    }
    return domain("delta.clustering", json.dumps(configuration, separators=(",", ":")))


def cloned(source: Path, target: Path) -> DeltaTable:
    """Make a clone of a table without files, or bring it up to date."""
    table, version = DeltaTable(str(target)), DeltaTable(str(source)).snapshot()
    transaction = (
        table.transaction("CLONE")
        if table.exists()
        else OptimisticTransaction(table.storage, None, "CLONE")
    )
    make_clone(transaction, version)
    return DeltaTable(str(target))


def make_clone(transaction: OptimisticTransaction, source: Snapshot) -> None:
    transaction.declare(CloneVersion(source, pa.chunked_array([], pa.string())))
    stage_clone_definition(transaction, source)
    # As a copy marks itself: also where nothing else changes.
    transaction.set_transaction("copy", source.version)
    transaction.commit()


def configuration(table: DeltaTable) -> dict[str, str]:
    return dict(table.snapshot().metadata.configuration)


def named(action: dict[str, Any], name: str, description: str | None = None) -> dict[str, Any]:
    changed = {**action["metaData"], "name": name, "description": description}
    return {"metaData": changed}


def with_identity(mark: int | None) -> dict[str, Any]:
    columns = schema(key="long", name="string")
    columns["fields"][0]["metadata"] = {**IDENTITY, **({} if mark is None else {MARK: mark})}
    return columns


def test_what_a_table_says_of_itself_comes_along(tmp_path: Path) -> None:
    columns = mapped(schema(id="long", p="string"))
    columns["fields"][0]["metadata"].update(comment="c", __CHAR_VARCHAR_TYPE_STRING="char(3)")
    properties = {
        MAX_ID: "7",
        "delta.columnMapping.mode": "name",
        "delta.constraints.x": "id > 0",
        "a.b": "c",
    }
    write_commit(
        tmp_path / "s",
        0,
        protocol("columnMapping", "checkConstraints", "domainMetadata", "clustering"),
        named(metadata(schema=columns, configuration=properties), "n", "d"),
        clustered("c1"),
        domain("of.a.user", "{}"),
        {"txn": {"appId": "task", "version": 1}},
    )
    source, clone = (
        DeltaTable(str(tmp_path / "s")).snapshot(),
        cloned(tmp_path / "s", tmp_path / "t").snapshot(),
    )
    assert clone.metadata.schema_string == source.metadata.schema_string
    assert (clone.metadata.name, clone.metadata.description) == ("n", "d")
    assert dict(clone.metadata.configuration) == properties
    assert clone.protocol == source.protocol
    assert clone.domains.keys() == {"delta.clustering"}
    assert clone.domains["delta.clustering"] == source.domains["delta.clustering"]
    assert clone.transactions.keys() == {"copy"}
    assert clone.metadata.id != source.metadata.id


def test_what_is_about_a_log_stays_with_it(tmp_path: Path) -> None:
    """Of the source: in-commit timestamps that began at some version, protected checkpoints, an owner."""
    write_commit(
        tmp_path / "s",
        0,
        protocol("checkpointProtection", "deletionVectors"),
        metadata(configuration={BOUNDARY: "3"}),
    )
    owners = {"memory": StoreBackedOwner(MemoryCommitStore())}
    source = DeltaTable(str(tmp_path / "s"), commit_owners=owners)
    source.convert_to_managed("memory")
    version = source.snapshot()
    assert version.properties.commit_owner == "memory"
    assert BEGAN in version.metadata.configuration
    target = DeltaTable(str(tmp_path / "t"))
    first = OptimisticTransaction(target.storage, None, "CLONE")
    make_clone(first, version)
    clone = target.snapshot()
    assert dict(clone.metadata.configuration) == TIMESTAMPS
    assert supported_features(clone.protocol) == {"inCommitTimestamp", "deletionVectors"}
    # And of the clone, where it is given to an owner.
    target = DeltaTable(str(tmp_path / "t"), commit_owners=owners)
    target.convert_to_managed("memory")
    held = dict(target.snapshot().metadata.configuration)
    make_clone(target.transaction("CLONE"), version)
    assert dict(target.snapshot().metadata.configuration) == held
    assert target.snapshot().properties.commit_owner == "memory"


def test_a_clone_never_forgets_what_it_is_a_copy_of(tmp_path: Path) -> None:
    """Identifiers that the source forgets after a while are those by which copies know each other."""
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 second", "x": "y"}
    write_commit(tmp_path / "s", 0, protocol(), metadata(configuration=forgets))
    assert configuration(cloned(tmp_path / "s", tmp_path / "t")) == {"x": "y"}
    # The next copy repairs a clone that was made so before.
    DeltaTable(str(tmp_path / "t")).alter.set_properties(forgets)
    target = cloned(tmp_path / "s", tmp_path / "t")
    assert configuration(target) == {"x": "y"}
    assert target.snapshot().transactions["copy"].version == 0


@pytest.mark.parametrize("enabled", [True, False])
def test_hidden_columns_of_row_tracking_get_names_of_their_own(
    tmp_path: Path, enabled: bool
) -> None:
    properties = {
        "delta.enableRowTracking": "true" if enabled else "false",
        HIDDEN: "_ids",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
    }
    write_commit(
        tmp_path / "s",
        0,
        protocol("rowTracking", "domainMetadata"),
        metadata(configuration=properties),
        domain("delta.rowTracking", '{"rowIdHighWaterMark":99}'),
    )
    first = configuration(cloned(tmp_path / "s", tmp_path / "t"))
    assert (HIDDEN in first) == enabled
    assert first.get(HIDDEN, "_row-id-col-").startswith("_row-id-col-")
    assert configuration(cloned(tmp_path / "s", tmp_path / "t")) == first
    assert "delta.rowTracking" not in DeltaTable(str(tmp_path / "t")).snapshot().domains


@pytest.mark.parametrize(("mark", "held", "kept"), [(None, 9, 9), (5, 9, 9), (20, 9, 20)])
def test_high_water_marks_of_identity_columns_never_decrease(
    tmp_path: Path, mark: int | None, held: int, kept: int
) -> None:
    features = protocol("identityColumns")
    write_commit(tmp_path / "s", 0, features, metadata(schema=with_identity(held)))
    target = cloned(tmp_path / "s", tmp_path / "t")
    write_commit(tmp_path / "s", 1, metadata(schema=with_identity(mark)))
    target = cloned(tmp_path / "s", tmp_path / "t")
    (key, _) = target.snapshot().schema
    assert key.metadata[MARK] == kept


def test_a_clone_that_is_brought_up_to_date_keeps_what_is_its_own(tmp_path: Path) -> None:
    write_commit(
        tmp_path / "s",
        0,
        protocol("clustering", "domainMetadata", "inCommitTimestamp"),
        {"commitInfo": {"inCommitTimestamp": 5, "timestamp": 5}},
        metadata(configuration=TIMESTAMPS),
        clustered("id"),
    )
    before = cloned(tmp_path / "s", tmp_path / "t").snapshot()
    target = DeltaTable(str(tmp_path / "t"))
    change = target.transaction("WRITE")
    change.set_domain("of.a.user", "theirs")
    change.commit()
    # The source gets a feature, loses another one with its columns, and is addressed by another name.
    write_commit(
        tmp_path / "s",
        1,
        {"commitInfo": {"inCommitTimestamp": 6, "timestamp": 6}},
        protocol("domainMetadata", "inCommitTimestamp", "deletionVectors"),
        named(metadata(configuration={**TIMESTAMPS, "x": "y"}), "new"),
        {"domainMetadata": {"domain": "delta.clustering", "configuration": "", "removed": True}},
    )
    after = cloned(tmp_path / "s", tmp_path / "t").snapshot()
    assert after.metadata.id == before.metadata.id
    assert after.metadata.created_time == before.metadata.created_time
    assert (after.metadata.name, configuration(target)) == ("new", {**TIMESTAMPS, "x": "y"})
    assert supported_features(after.protocol) == {
        *("clustering", "domainMetadata", "inCommitTimestamp", "deletionVectors")
    }
    assert after.domains["of.a.user"].configuration == "theirs"
    assert json.loads(after.domains["delta.clustering"].configuration)["clusteringColumns"] == []


def test_a_clone_of_a_version_with_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    write_commit(tmp_path / "s", 0, protocol("fromTheFuture"), metadata())
    with pytest.raises(
        UnsupportedFeatureError, match=r"\['fromTheFuture'\], which the engine doesn't"
    ):
        cloned(tmp_path / "s", tmp_path / "t")
