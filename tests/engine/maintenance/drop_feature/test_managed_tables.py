"""Features of tables that belong to a commit owner: checkpoints need backfilled commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable, StructField, StructType
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import LONG

SCHEMA = StructType((StructField("id", LONG),))


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table with V2 checkpoints, whose owner backfills nothing unasked."""
    DeltaTable.create(tmp_path, SCHEMA, properties={"delta.checkpointPolicy": "v2"})
    owners = {"owner-db": StoreBackedOwner(MemoryCommitStore())}
    delta = DeltaTable(tmp_path, commit_owners=owners)
    delta.convert_to_managed("owner-db", {"backfill": "on-request"})
    delta.alter.set_properties({"mine": "x"})
    return delta


def test_versions_are_hidden_by_checkpoints_of_backfilled_commits(table: DeltaTable) -> None:
    result = table.drop_feature("v2Checkpoint")
    assert result.status == "dropped"
    snapshot = table.snapshot()
    assert snapshot.version == result.version
    assert supported_features(snapshot.protocol) == {
        "managedCommit",
        "inCommitTimestamp",
        "checkpointProtection",
    }
    # Who doesn't know the owner sees it as well: what has a checkpoint is backfilled.
    unowned = DeltaTable(
        table.uri, commit_owners={"owner-db": StoreBackedOwner(MemoryCommitStore())}
    )
    for version in range(result.version - 3, result.version + 1):
        checkpoint = unowned.snapshot(version).segment.checkpoint
        assert checkpoint is not None
        assert checkpoint.version == version


def test_history_is_truncated_as_far_as_it_is_backfilled(table: DeltaTable) -> None:
    result = table.drop_feature("v2Checkpoint", truncate_history=True)
    assert result.status == "waiting"
    assert table.commit_status().backfilled_version == table.latest_version() == result.version


def test_the_table_is_handed_back_by_its_owner(table: DeltaTable) -> None:
    with pytest.raises(ConstraintViolationError, match=r"\['managedCommit'\] of the table require"):
        table.drop_feature("inCommitTimestamp")
    plan = table.drop_feature("managedCommit", dry_run=True).plan
    assert plan is not None
    assert plan.steps[0] == "take the table back from its commit owner"
    result = table.drop_feature("managedCommit")
    assert (result.status, result.num_commits) == ("dropped", 1)
    assert table.snapshot().properties.commit_owner is None
    assert supported_features(table.snapshot().protocol) == {"v2Checkpoint", "inCommitTimestamp"}
    # Everybody sees all of it, and goes on.
    alone = DeltaTable(table.uri)
    assert alone.latest_version() == result.version
    assert alone.drop_feature("inCommitTimestamp").status == "dropped"
