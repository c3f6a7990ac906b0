"""A metadata cleanup that is broken off: whatever it has deleted, nothing is lost but what was to go.

At each moment the newest version reads as it should, for us and for other engines, and so does each version
that the plan keeps. The others read as they should, or are said to be gone. The next run ends what was
begun, and leaves what a run without a crash leaves.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from deltalake import DeltaTable as PeerTable

from airflow_delta.engine.errors import StorageError, VersionNotFoundError
from airflow_delta.engine.maintenance.metadata_cleanup import execution as cleanup_execution
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import MetadataCleanupPlan
from tests.cleanup_tables import LAST, Log, check_versions, clean_up, made, planned
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.faults.test_maintenance_steps import lay_out
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.table_builder import MemoryTable, state_of, states

LOGS = {
    "classic": Log((3, 5)),
    "with all that there is": Log((2, 5, 7), "v2 json", extras=True),
    "parts": Log((3, 5), "parts"),
    "timestamps": Log((3, 5), "v2 of the classic name", timestamps=True),
    "protected": Log((3, 5), protected=6),
    "protected, all at once": Log((2, 5), "v2 parquet", protected=5, unknown=range(1, 4)),
    "protected, as far as known": Log((2, 3, 5), protected=8, unknown=range(3, 5)),
}
CHANGES = ("delete", "replace")
HOWS = (How.FAIL, How.CRASH_WITHIN, How.CRASH_AFTER, How.REPEAT)


@pytest.fixture(autouse=True)
def each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are deleted two by two, so that a call may be broken off in the middle."""
    monkeypatch.setattr(cleanup_execution, "_BATCH", 2)


def examine(table: MemoryTable, log: Log, plan: MetadataCleanupPlan) -> None:
    """Nothing is lost but what was to go, however far the cleanup has come."""
    expected, earliest = states(log.history), plan.earliest_version
    for version in sorted({0, 1, earliest - 1, earliest, LAST, *plan.protected_versions}):
        try:
            found = state_of(table.delta().snapshot(version))
        except VersionNotFoundError as error:
            assert version < earliest, version
            assert version not in plan.protected_versions
            assert version < error.earliest <= earliest  # noqa: PT017
        else:
            assert found == expected[version].visible()


def finish(
    table: MemoryTable, log: Log, plan: MetadataCleanupPlan, expected: Iterable[str]
) -> None:
    """The next run leaves what a run without a crash leaves."""
    clean_up(table.delta())
    assert table.files().keys() == expected
    check_versions(table.delta, log, plan, versions=(0, plan.earliest_version))


@pytest.mark.parametrize(
    "name", deep_but_for(sorted(LOGS.keys() - {"classic", "parts"}), "with all that there is")
)
def test_a_cleanup_survives_whatever_fails(name: str) -> None:
    log = LOGS[name]
    with made(log) as table:
        plan, undisturbed = planned(table.delta()), FaultyStorage(table.storage)
        execute_metadata_cleanup(undisturbed, plan)
        steps = [call for call in undisturbed.calls if call.operation in CHANGES]
        after = table.files().keys()
    assert len(steps) == sum(-(-group.count // 2) for group in plan.deletes) + 1
    examined = set()
    for nth in range(1, len(steps) + 1):
        for how in HOWS:
            with made(log) as table:
                plan = planned(table.delta())
                operation = "replace" if nth == 1 else "delete"
                fault = Fault(operation, nth if nth == 1 else nth - 1, how)
                storage = FaultyStorage(table.storage, fault)
                try:
                    execute_metadata_cleanup(storage, plan)
                except (Crash, StorageError):
                    assert how is not How.REPEAT
                assert len(storage.met) == 1
                left = frozenset(path for path in table.files() if ".tmp" not in path)
                if left not in examined:
                    examined.add(left)
                    examine(table, log, plan)
                    finish(table, log, plan, after | (table.files().keys() - left))
    assert len(examined) > len(steps)


@pytest.mark.parametrize(
    "name", deep_but_for(LOGS, "with all that there is", "protected", "timestamps")
)
def test_a_store_may_delete_in_any_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of a kind by one call, of which some have gone when the process dies."""
    monkeypatch.setattr(cleanup_execution, "_BATCH", 1000)
    log = LOGS[name]
    with made(log) as table:
        plan = planned(table.delta())
        execute_metadata_cleanup(table.storage, plan)
        after = table.files().keys()
    for number, group in enumerate(plan.deletes):
        rng = random.Random(number)
        for _ in range(3):
            with made(log) as table:
                plan = planned(table.delta())
                for earlier in plan.deletes[:number]:
                    table.storage.delete(earlier.paths)
                paths = list(group.paths)
                table.storage.delete(rng.sample(paths, rng.randrange(len(paths) + 1)))
                examine(table, log, plan)
                finish(table, log, plan, after)


def moments(log: Log) -> list[dict[str, bytes]]:
    """The files of a table after each single delete."""
    with made(log) as table:
        plan = planned(table.delta())
        found = []
        snapshots = FaultyStorage(
            table.storage,
            Fault("delete", nth=0, meanwhile=lambda: found.append(table.files())),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleanup_execution, "_BATCH", 1)
            execute_metadata_cleanup(snapshots, plan)
        assert len(found) == plan.num_files
        return [*found, table.files()]


@pytest.mark.parametrize("name", LOGS)
def test_the_peer_opens_the_newest_version_after_each_single_delete(
    name: str, tmp_path: Path
) -> None:
    log = LOGS[name]
    expected = {path for path, _ in states(log.history)[-1].files}
    for number, files in enumerate(moments(log)):
        root = tmp_path / str(number)
        lay_out(files, root)
        peer = PeerTable(str(root))
        assert peer.version() == LAST
        assert {uri.rpartition("/")[2] for uri in peer.file_uris()} == expected


@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    ["classic", "with all that there is", "protected, all at once"],
)
def test_delta_spark_opens_the_newest_version_after_a_crash(
    name: str, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    log = LOGS[name]
    found = moments(log)
    expected = len(states(log.history)[-1].files)
    for number in sorted({1, len(found) // 3, 2 * len(found) // 3, len(found) - 1}):
        root = tmp_path / str(number)
        lay_out(found[number], root)
        (detail,) = delta_spark.sql(f"DESCRIBE DETAIL delta.`{root}`")
        assert detail["numFiles"] == expected
