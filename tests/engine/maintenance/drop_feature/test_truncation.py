"""Features that are dropped once the history with them has expired: two runs, and the time between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_delta.engine import AddFile, RemoveFile
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.checkpointing import execute_checkpoint, plan_checkpoint
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.maintenance.restore_files import add_actions
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.engine.maintenance.drop_feature.worlds import HOUR, MINUTE, World

PROTECTION = "checkpointProtection"

# The property that turns the feature on.
TRACED = {
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "typeWidening": {"delta.enableTypeWidening": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
}


def up_to_the_minute(time_ms: int) -> int:
    return -(-time_ms // MINUTE) * MINUTE


@pytest.mark.parametrize("feature", TRACED)
def test_two_runs_with_a_day_between_them(feature: str) -> None:
    files = () if feature == "columnMapping" else ("a", "b")
    world = World(TRACED[feature], *files)
    first = world.drop(feature, truncate_history=True)
    assert first.status == "waiting"
    # The traces are gone, and there is a checkpoint to begin with, by whose age it goes.
    start = first.version
    assert world.snapshot().segment.checkpoint is not None
    checkpointed = world.snapshot(start).timestamp_ms
    assert first.ready_at_ms == up_to_the_minute(checkpointed) + 24 * HOUR
    assert f"the history up to version {start - 1} needs {feature}" in first.reason
    assert "come back at 2027-01-1" in first.reason
    # Too early by a millisecond, whatever else is done meanwhile.
    if feature != "columnMapping":
        world.append("c")
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms - 1
    again = world.drop(feature, truncate_history=True)
    assert (again.status, again.ready_at_ms, again.num_commits) == ("waiting", first.ready_at_ms, 0)
    # In time.
    expected = world.paths()
    world.now = first.ready_at_ms
    plan = world.drop(feature, truncate_history=True, dry_run=True).plan
    assert plan is not None
    assert plan.steps == (
        f"clean up the log before version {start}",
        f"take {feature} out of the protocol",
    )
    result = world.drop(feature, truncate_history=True)
    assert (result.status, result.num_commits) == ("dropped", 1)
    supported = supported_features(world.snapshot().protocol)
    assert not {feature, PROTECTION} & supported
    assert world.paths() == expected
    for version in range(start, result.version + 1):
        world.snapshot(version)
    with pytest.raises(VersionNotFoundError):
        world.snapshot(start - 1)
    assert world.drop(feature, truncate_history=True).reason == (
        f"version {result.version} has dropped {feature}"
    )


def test_a_dry_run_says_that_there_will_be_two() -> None:
    world = World(TRACED["v2Checkpoint"])
    result = world.drop("v2Checkpoint", truncate_history=True, dry_run=True)
    assert (result.status, result.ready_at_ms) == ("planned", None)
    assert result.plan is not None
    assert [step.split(",")[0] for step in result.plan.steps] == [
        "set delta.checkpointPolicy to classic",
        "write a checkpoint",
        "wait until that is 24 hours old (delta.dropFeatureTruncateHistory.retentionDuration)",
        "clean up the log before it",
        "take v2Checkpoint out of the protocol",
    ]
    assert world.snapshot().version == 0


def test_the_table_says_how_long_to_wait() -> None:
    retention = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 2 hours"}
    world = World({**TRACED["typeWidening"], **retention})
    first = world.drop("typeWidening", truncate_history=True)
    assert first.ready_at_ms is not None
    assert 2 * HOUR < first.ready_at_ms - world.snapshot().timestamp_ms < 2 * HOUR + MINUTE


def test_what_was_never_used_goes_at_once() -> None:
    """As by Delta Spark: there is nothing in the history to wait for."""
    world = World({"delta.feature.vacuumProtocolCheck": "supported"}, "a")
    result = world.drop("vacuumProtocolCheck", truncate_history=True)
    assert (result.status, result.version) == ("dropped", 2)
    assert world.snapshot().protocol == Protocol(1, 1)
    assert world.paths(1) == ["a"]


def test_a_trace_of_a_single_commit_counts() -> None:
    """The metadata of a commit turn the feature on, and those of the next one off."""
    world = World({"delta.feature.typeWidening": "supported"}, "a")
    for value in ("true", "false"):
        transaction = world.begin("SET TBLPROPERTIES")
        metadata = transaction.base.metadata
        changed = {**metadata.configuration, "delta.enableTypeWidening": value}
        transaction.set_metadata(
            type(metadata).from_json({**metadata.to_json(), "configuration": changed}, "")
        )
        transaction.commit()
    result = world.drop("typeWidening", truncate_history=True)
    assert result.status == "waiting"
    assert result.plan is not None
    assert result.plan.truncation is not None
    assert result.plan.truncation.last_trace == 2


def test_v2_checkpoints_count_as_long_as_they_are_there() -> None:
    world = World(TRACED["v2Checkpoint"], "a")
    snapshot = world.snapshot()
    execute_checkpoint(world.storage, snapshot, plan_checkpoint(snapshot))
    first = world.drop("v2Checkpoint", truncate_history=True)
    assert (first.status, first.version) == ("waiting", 2)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    assert world.drop("v2Checkpoint", truncate_history=True).status == "dropped"
    assert not any("_sidecars" in name or name.startswith(f"{1:020}") for name in world.names())


def test_protection_waits_for_what_it_protects() -> None:
    world = World(TRACED["v2Checkpoint"], "a")
    boundary = world.drop("v2Checkpoint").version
    world.append("b")
    first = world.drop(PROTECTION, truncate_history=True)
    assert first.status == "waiting"
    # The protected checkpoint at the boundary is where the log will begin.
    assert first.ready_at_ms == up_to_the_minute(world.snapshot(boundary).timestamp_ms) + 24 * HOUR
    world.now = first.ready_at_ms
    result = world.drop(PROTECTION, truncate_history=True)
    assert result.status == "dropped"
    assert world.snapshot().protocol == Protocol(1, 1)
    assert "delta.requireCheckpointProtectionBeforeVersion" not in (
        world.snapshot().metadata.configuration
    )
    assert min(int(name[:20]) for name in world.names() if name[:20].isdigit()) == boundary
    assert world.paths(boundary) == ["a"]


def test_protection_goes_along_with_the_last_feature() -> None:
    world = World({**TRACED["v2Checkpoint"], **TRACED["typeWidening"]}, "a")
    world.drop("v2Checkpoint")
    first = world.drop("typeWidening", truncate_history=True)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    plan = world.drop("typeWidening", truncate_history=True, dry_run=True).plan
    assert plan is not None
    assert plan.dropped == {"typeWidening", PROTECTION}
    world.drop("typeWidening", truncate_history=True)
    assert world.snapshot().protocol == Protocol(1, 1)


def test_protected_checkpoints_stay_while_the_boundary_does() -> None:
    """Another feature expires before the boundary does: the history is truncated as far as it may."""
    world = World(TRACED["typeWidening"], "a")
    first = world.drop("typeWidening", truncate_history=True)
    world.now += 20 * HOUR
    transaction = world.begin("ADD FEATURE")
    features = frozenset({"typeWidening", "vacuumProtocolCheck"})
    transaction.set_protocol(Protocol(3, 7, features, features))
    transaction.commit()
    boundary = world.drop("vacuumProtocolCheck").version
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    result = world.drop("typeWidening", truncate_history=True)
    assert result.status == "dropped"
    assert supported_features(world.snapshot().protocol) == {PROTECTION}
    properties = world.snapshot().properties
    assert properties.require_checkpoint_protection_before_version == boundary
    assert world.paths(boundary) == ["a"]


def test_cleanup_is_done_though_the_table_says_no() -> None:
    world = World({**TRACED["typeWidening"], "delta.enableExpiredLogCleanup": "false"})
    first = world.drop("typeWidening", truncate_history=True)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    assert world.drop("typeWidening", truncate_history=True).status == "dropped"


def test_versions_between_have_the_traces_of_the_one_before() -> None:
    """A checkpoint after the commit that turned the feature on isn't one to begin with."""
    world = World(TRACED["typeWidening"], "a", "b")
    snapshot = world.snapshot()
    execute_checkpoint(world.storage, snapshot, plan_checkpoint(snapshot))
    world.now += 30 * HOUR
    first = world.drop("typeWidening", truncate_history=True)
    assert (first.status, first.version) == ("waiting", 3)
    assert first.plan is not None
    assert first.plan.truncation is not None
    assert (first.plan.truncation.last_trace, first.plan.truncation.start) == (2, 3)
    # What has expired by now isn't cleaned up in vain.
    assert world.snapshot(0).version == 0


def test_deletion_vectors_count_until_they_are_removed() -> None:
    world = World(TRACED["deletionVectors"], "a")
    vector = DeletionVectorDescriptor(
        "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6
    )
    transaction = world.begin("DELETE")
    (added,) = add_actions(world.snapshot().files(), data_change=True)
    transaction.remove_file(RemoveFile("a", data_change=True))
    transaction.add_file(replace(added, deletion_vector=vector, stats='{"numRecords":7}'))
    transaction.commit()
    world.append("b")

    def purge(_: str, rewrite: Rewrite) -> None:
        assert rewrite.num_files == 1
        transaction = world.begin("REORG")
        transaction.remove_file(RemoveFile("a", data_change=False, deletion_vector=vector))
        transaction.add_file(AddFile("c", {}, 1, 1, data_change=False, stats='{"numRecords":1}'))
        transaction.commit()

    first = world.drop("deletionVectors", truncate_history=True, rewriter=purge)
    # 0 table, 1 and 3 appends, 2 delete, 4 property, 5 purge: 4 still has the vector.
    assert first.status == "waiting"
    assert first.plan is not None
    assert first.plan.truncation is not None
    assert (first.plan.truncation.last_trace, first.plan.truncation.start) == (4, 5)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    assert world.drop("deletionVectors", truncate_history=True).status == "dropped"
    assert world.paths() == ["b", "c"]
