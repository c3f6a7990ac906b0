"""Features that are dropped once the history with them has expired: two runs, and the time between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import AddFile, RemoveFile
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.checkpoint.execution import (
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.transaction.file_rows import add_actions
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from tests.engine.maintenance.drop_feature.worlds import HOUR, MINUTE, World
from tests.faulty_storage import Fault, FaultyStorage

PROTECTION = "checkpointProtection"

VECTOR = DeletionVectorDescriptor(
    "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6
)

# The property that turns the feature on.
TRACED = {
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "typeWidening": {"delta.enableTypeWidening": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
}


def delete_rows(world: World) -> None:
    """Delete rows of the file a."""
    change_vector(world.begin("DELETE"), None, VECTOR)


def restore_rows(world: World) -> None:
    """Bring them back."""
    change_vector(world.begin("RESTORE"), VECTOR, None)


def change_vector(
    transaction: OptimisticTransaction,
    before: DeletionVectorDescriptor | None,
    after: DeletionVectorDescriptor | None,
) -> None:
    files = transaction.base.files()
    (added,) = add_actions(files.filter(pc.equal(files["path"], "a")), data_change=True)
    transaction.remove_file(RemoveFile("a", data_change=True, deletion_vector=before))
    transaction.add_file(replace(added, deletion_vector=after, stats='{"numRecords":7}'))
    transaction.commit()


def checkpointed(world: World, **options: Any) -> int:
    """Write the checkpoint of the newest version."""
    snapshot = world.snapshot()
    execute_checkpoint(world.storage, snapshot, plan_checkpoint(snapshot, **options))
    return snapshot.version


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
        "wait until that is 1 day old (delta.dropFeatureTruncateHistory.retentionDuration)",
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


def test_a_feature_that_was_never_used_is_dropped_at_once() -> None:
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
    assert result.plan.truncation.last_use == 2


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


def test_protection_is_dropped_with_the_last_feature() -> None:
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
    assert (first.plan.truncation.last_use, first.plan.truncation.start) == (2, 3)
    # What has expired by now isn't cleaned up in vain.
    assert world.snapshot(0).version == 0


def test_deletion_vectors_count_until_they_are_removed() -> None:
    world = World(TRACED["deletionVectors"], "a")
    delete_rows(world)
    world.append("b")

    def purge(_: str, rewrite: Rewrite) -> None:
        assert rewrite.num_files == 1
        transaction = world.begin("REORG")
        transaction.remove_file(RemoveFile("a", data_change=False, deletion_vector=VECTOR))
        transaction.add_file(AddFile("c", {}, 1, 1, data_change=False, stats='{"numRecords":1}'))
        transaction.commit()

    first = world.drop("deletionVectors", truncate_history=True, rewriter=purge)
    # 0 table, 1 and 3 appends, 2 delete, 4 property, 5 purge: 4 still has the vector.
    assert first.status == "waiting"
    assert first.plan is not None
    assert first.plan.truncation is not None
    assert (first.plan.truncation.last_use, first.plan.truncation.start) == (4, 5)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    assert world.drop("deletionVectors", truncate_history=True).status == "dropped"
    assert world.paths() == ["b", "c"]


def test_a_restored_file_counts_where_a_removed_one_of_its_path_has_a_vector() -> None:
    """To a reader without deletion vectors a checkpoint with both may say that the file is gone."""
    world = World(TRACED["deletionVectors"], "a")
    delete_rows(world)
    restore_rows(world)
    assert checkpointed(world) == 3
    world.append("b")

    def rewrite(_: str, wanted: Rewrite) -> None:
        assert wanted.num_files == 1
        transaction = world.begin("REORG")
        transaction.remove_file(RemoveFile("a", data_change=False))
        transaction.add_file(AddFile("c", {}, 1, 1, data_change=False, stats='{"numRecords":7}'))
        transaction.commit()

    first = world.drop("deletionVectors", truncate_history=True, rewriter=rewrite)
    # 5 turns it off, 6 rewrites: in 5 the file is still there.
    assert first.plan is not None
    assert first.plan.truncation is not None
    assert (first.plan.truncation.last_use, first.plan.truncation.start) == (5, 6)


@pytest.mark.parametrize("appended", [(), ("b", "c")], ids=["adjacent", "apart"])
def test_a_protected_checkpoint_with_a_trace_keeps_it_until_the_boundary(
    appended: tuple[str, ...],
) -> None:
    protection = {"delta.feature.vacuumProtocolCheck": "supported"}
    world = World({**TRACED["typeWidening"], **protection}, "a")
    traced = checkpointed(world)
    for name in appended:
        world.append(name)
    first = world.drop("typeWidening", truncate_history=True)
    world.now += 20 * HOUR
    boundary = world.drop("vacuumProtocolCheck").version
    # The start is old enough, but the checkpoint from before it is protected now.
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms
    second = world.drop("typeWidening", truncate_history=True)
    assert second.status == "waiting"
    assert second.plan is not None
    assert second.plan.truncation is not None
    assert second.plan.truncation.last_use is not None
    assert second.plan.truncation.last_use >= traced
    assert second.plan.truncation.start == boundary
    ready = up_to_the_minute(world.snapshot(boundary).timestamp_ms) + 24 * HOUR
    assert second.ready_at_ms == ready
    world.now = ready
    assert world.drop("typeWidening", truncate_history=True).status == "dropped"
    assert world.snapshot().protocol == Protocol(1, 1)
    with pytest.raises(VersionNotFoundError):
        world.snapshot(traced)


def test_a_checkpoint_that_an_earlier_cleanup_has_left_counts() -> None:
    protection = {"delta.feature.vacuumProtocolCheck": "supported"}
    world = World({**TRACED["typeWidening"], **protection}, "a")
    traced = checkpointed(world)
    world.append("b")
    world.drop("typeWidening", truncate_history=True)
    boundary = world.drop("vacuumProtocolCheck").version
    for version in range(boundary):
        world.storage.delete([f"_delta_log/{version:020}.json"])
    assert world.paths(traced) == ["a"]
    result = world.drop("typeWidening", truncate_history=True)
    assert result.status == "waiting"
    assert result.plan is not None
    assert result.plan.truncation is not None
    assert result.plan.truncation.last_use == traced


def test_a_trace_that_came_and_went_concurrently_is_in_the_history() -> None:
    world = World(TRACED["deletionVectors"], "a")
    first = world.drop("deletionVectors", truncate_history=True)
    assert first.ready_at_ms is not None
    world.now = first.ready_at_ms

    masked = AddFile("a", {}, 1, 1, True, '{"numRecords":7}', deletion_vector=VECTOR)
    other = AddFile("c", {}, 1, 1, False, '{"numRecords":7}')

    def meanwhile() -> None:
        # Another engine, which doesn't mind that new ones aren't wanted any more.
        world.commit({"remove": {"path": "a", "dataChange": True}}, {"add": masked.to_json()})
        removed = {"path": "a", "dataChange": False, "deletionVector": VECTOR.to_json()}
        world.commit({"remove": removed}, {"add": other.to_json()})

    following = f"{world.snapshot().version + 1:020}.json"
    storage = FaultyStorage(world.storage, Fault("create", 1, None, following, meanwhile))
    result = world.drop("deletionVectors", truncate_history=True, storage=storage)
    assert result.status == "waiting"
    assert result.plan is not None
    assert result.plan.truncation is not None
    assert result.plan.truncation.last_use == 3
    assert "deletionVectors" in supported_features(world.snapshot().protocol)


def test_a_late_v2_checkpoint_of_the_newest_version_needs_a_newer_one() -> None:
    world = World(TRACED["v2Checkpoint"], "a")
    version = world.drop("v2Checkpoint", truncate_history=True).version
    name = f"_delta_log/{version:020}.checkpoint.parquet"
    world.storage.delete([name])
    assert checkpointed(world, policy="v2") == version
    result = world.drop("v2Checkpoint", truncate_history=True)
    assert (result.status, result.num_commits, result.version) == ("waiting", 1, version + 1)
    assert result.plan is not None
    assert result.plan.truncation is not None
    assert result.plan.truncation.start == version + 1


def test_when_to_come_back_is_all_that_is_said() -> None:
    reason = World(TRACED["typeWidening"]).drop("typeWidening", truncate_history=True).reason
    assert reason.endswith(" or later")
