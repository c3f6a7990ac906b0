"""A drop of a feature that is broken off, and one that others get in the way of.

Each run dies, or meets a store that fails, at one of the steps that change something. Whatever was done
by then, each version reads as before. The next run ends it: the same protocol, with the versions with the
feature as well hidden as without a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from airflow_delta.engine import AddFile
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConstraintViolationError,
    StorageError,
)
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.snapshot.opening import open_newest
from tests.engine.maintenance.drop_feature.worlds import World
from tests.faulty_storage import Crash, Fault, FaultyStorage, How

PROTECTION = "checkpointProtection"
VECTOR = DeletionVectorDescriptor(
    "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6
)

CASES: dict[str, dict[str, str]] = {
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
    "rowTracking": {"delta.enableRowTracking": "true"},
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
}
CHANGES = {
    ("create", ".json"): (How.FAIL, How.CRASH_AFTER, How.LOSE_ANSWER),
    ("replace", ""): (How.FAIL, How.CRASH_AFTER),
    ("writer", ""): (How.FAIL, How.CRASH_AFTER),
}
"""The steps of a drop that change something, but for checksums, and how each goes wrong."""

FAILURES = (Crash, StorageError, CommitOutcomeUnknownError)


def examine(world: World, *, hidden: bool) -> None:
    """The versions read, and have the files that they had."""
    newest = world.snapshot()
    for version in {0, 1, 2, newest.version}:
        assert world.paths(version) == ["a", "b"][: min(version, 2)]
    boundary = newest.properties.require_checkpoint_protection_before_version
    assert boundary in (0, newest.version)
    if hidden and boundary:
        # From here on no reader needs a commit of a version that uses the feature.
        checkpoints = {found.version for found in list_log(world.storage).checkpoints}
        assert set(range(boundary - 3, boundary)) <= checkpoints


@pytest.mark.filterwarnings(
    "ignore:.*_last_checkpoint can't:airflow_delta.engine.errors.DeltaWarning"
)
@pytest.mark.parametrize("feature", ["v2Checkpoint", "rowTracking"])
def test_a_drop_that_is_broken_off_is_ended_by_the_next_run(feature: str) -> None:
    hidden = feature != "rowTracking"
    world = World(CASES[feature], "a", "b")
    undisturbed = FaultyStorage(world.storage)
    world.drop(feature, storage=undisturbed)
    expected = world.snapshot().protocol
    assert undisturbed.count("delete") == 0
    for (operation, suffix), hows in CHANGES.items():
        count = undisturbed.count(operation, suffix)
        assert count or not hidden
        for nth, how in ((nth, how) for nth in range(1, count + 1) for how in hows):
            world = World(CASES[feature], "a", "b")
            storage = FaultyStorage(world.storage, Fault(operation, nth, how, suffix))
            with suppress(*FAILURES):
                world.drop(feature, storage=storage)
            assert len(storage.met) == 1
            examine(world, hidden=hidden)
            result = world.drop(feature)
            assert result.status == "dropped"
            assert world.snapshot().protocol == expected
            examine(world, hidden=hidden)
            if hidden:
                listing = list_log(world.storage, start=result.version, end=result.version)
                assert len(listing.checkpoints) == 1


@pytest.mark.parametrize(("operation", "nth"), [("delete", 1), ("delete", 2), ("create", 1)])
def test_a_truncation_that_is_broken_off_is_ended_by_the_next_run(operation: str, nth: int) -> None:
    world = World(CASES["v2Checkpoint"], "a", "b")
    ready = world.drop("v2Checkpoint", truncate_history=True).ready_at_ms
    assert ready is not None
    world.now = ready
    storage = FaultyStorage(world.storage, Fault(operation, nth, How.CRASH_WITHIN))
    with pytest.raises(Crash):
        world.drop("v2Checkpoint", truncate_history=True, storage=storage)
    assert world.paths() == ["a", "b"]
    assert world.drop("v2Checkpoint", truncate_history=True).status == "dropped"
    assert world.paths() == ["a", "b"]
    assert not supported_features(world.snapshot().protocol)


def meanwhile(world: World, act: Callable[[], object], *, at: str) -> FaultyStorage:
    """Let somebody be faster, once, when a commit of a version is to be put."""
    done = False

    def _once() -> None:
        nonlocal done
        if not done:
            done = True
            act()

    return FaultyStorage(world.storage, Fault("create", 1, None, suffix=at, meanwhile=_once))


def commit(version: int) -> str:
    return f"{version:020}.json"


# Version 0 is the table, 1 a file, 2 the property, 3 to 5 are the barriers, and 6 is the drop.
@pytest.mark.parametrize("at", [2, 3, 4, 5, 6])
def test_appends_meanwhile_are_hidden_as_well(at: int) -> None:
    world = World(CASES["v2Checkpoint"], "a")
    storage = meanwhile(world, lambda: world.append("x"), at=commit(at))
    result = world.drop("v2Checkpoint", storage=storage)
    assert len(storage.met) == 1
    snapshot = world.snapshot()
    # A table that is never still has its three barriers nonetheless.
    assert result.version == snapshot.version == 7
    # The boundary is that of the version that was made at last.
    assert snapshot.properties.require_checkpoint_protection_before_version == 7
    assert [c.version for c in list_log(world.storage, start=7).checkpoints] == [7]
    assert world.paths() == ["a", "x"]


def set_property(world: World, name: str, value: str) -> None:
    transaction = world.begin("SET TBLPROPERTIES")
    metadata = transaction.base.metadata
    configuration = {**metadata.configuration, name: value}
    transaction.set_metadata(replace(metadata, configuration=configuration))
    transaction.commit()


@pytest.mark.parametrize("at", [3, 4, 5, 6])
def test_a_feature_that_is_turned_on_meanwhile_is_turned_off_again(at: int) -> None:
    world = World(CASES["v2Checkpoint"], "a")
    storage = meanwhile(
        world, lambda: set_property(world, "delta.checkpointPolicy", "v2"), at=commit(at)
    )
    result = world.drop("v2Checkpoint", storage=storage)
    assert len(storage.met) == 1
    history = [info.operation for info in world.snapshot().timeline.history()]
    # After the last trace there are all three barriers.
    assert history[:5] == ["DROP FEATURE", *["Empty Commit"] * 3, "SET TBLPROPERTIES"]
    snapshot = world.snapshot()
    assert snapshot.properties.checkpoint_policy == "classic"
    assert "v2Checkpoint" not in supported_features(snapshot.protocol)
    assert snapshot.properties.require_checkpoint_protection_before_version == result.version


def test_deletion_vectors_that_come_at_the_last_moment_are_seen() -> None:
    """By a writer who doesn't care for the property: the drop isn't committed, and asks for them."""
    world = World(CASES["deletionVectors"], "a")

    def _careless() -> None:
        line = (
            '{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,'
            '"stats":"{\\"numRecords\\":9}","deletionVector":{"storageType":"i","pathOrInlineDv":"'
            f'{VECTOR.path_or_inline_dv}","sizeInBytes":40,"cardinality":6}}}}}}\n'
        )
        info = '{"commitInfo":{"timestamp":1,"operation":"WRITE","isBlindAppend":true}}\n'
        world.storage.create(f"_delta_log/{commit(6)}", (info + line).encode())

    storage = meanwhile(world, _careless, at=commit(6))
    result = world.drop("deletionVectors", storage=storage)
    assert result.status == "needs rewrite"
    assert result.rewrite is not None
    assert result.rewrite.num_files == 1
    assert world.snapshot().version == 6
    assert "deletionVectors" in supported_features(world.snapshot().protocol)


def test_row_ids_that_come_at_the_last_moment_are_taken() -> None:
    world = World(CASES["rowTracking"], "a")

    def _careless() -> None:
        line = (
            '{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,'
            '"stats":"{\\"numRecords\\":9}","baseRowId":50,"defaultRowCommitVersion":4}}\n'
        )
        info = '{"commitInfo":{"timestamp":1,"operation":"WRITE","isBlindAppend":true}}\n'
        world.storage.create(f"_delta_log/{commit(4)}", (info + line).encode())

    result = world.drop("rowTracking", storage=meanwhile(world, _careless, at=commit(4)))
    assert result.status == "dropped"
    files = world.snapshot().files()
    assert sorted(files["path"].to_pylist()) == ["a", "x"]
    assert files["baseRowId"].null_count == 2


def test_constraints_that_come_at_the_last_moment_stay() -> None:
    world = World({"delta.feature.checkConstraints": "supported"})
    storage = meanwhile(
        world, lambda: set_property(world, "delta.constraints.few", "id < 9"), at=commit(1)
    )
    with pytest.raises(ConstraintViolationError, match=r"constraints \['few'\]"):
        world.drop("checkConstraints", storage=storage)
    assert "checkConstraints" in supported_features(world.snapshot().protocol)


def test_who_has_prepared_a_commit_by_the_old_protocol_learns_of_the_drop() -> None:
    world = World(CASES["v2Checkpoint"], "a")
    late = world.begin("WRITE")
    late.add_file(AddFile("x", {}, 1, 1, data_change=True, stats='{"numRecords":1}'))
    world.drop("v2Checkpoint")
    with pytest.raises(CommitConflictError, match=r"version [2-6] "):
        late.commit()
    assert open_newest(world.storage).version == 6
