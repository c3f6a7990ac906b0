"""Nothing that can't be taken back rests on a hint: version checksums, ``_last_checkpoint``, compactions.

Each of them may be missing, old or wrong; the protocol gives none of them a say. So whoever deletes files
or writes a checkpoint goes by commits and checkpoints alone.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest

from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    MetadataCleanupPlan,
    plan_metadata_cleanup,
)
from tests.cleanup_tables import DAY, START, epoch_ms
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

BOUNDARY, END, START_OF_LOG = 20, 23, 12
KNOWN = frozenset({"v2Checkpoint", "checkpointProtection"})
PROPERTIES = {
    "delta.requireCheckpointProtectionBeforeVersion": str(BOUNDARY),
    "delta.logRetentionDuration": "interval 0 days",
}


def history(properties: dict[str, str] = PROPERTIES) -> list[list[Action]]:
    """A day between two versions; 3 to 8 have a feature that nobody knows, so they go last."""
    found: list[list[Action]] = [[add(f"f{version}")] for version in range(END + 1)]
    found[0] += [protocol({*KNOWN}), metadata(configuration=properties)]
    found[3].append(protocol({*KNOWN, "novelty"}))
    found[9].append(protocol({*KNOWN}))
    # So large that a checksum is the smaller file.
    return [[{"commitInfo": {"note": "x" * 5000}}, *actions] for actions in found]


def dated(files: Files) -> MemoryTable:
    table = MemoryTable(files)
    for path in files:
        version = re.search(r"[0-9]{20}", path)
        moment = START + int(version[0] if version else END) * DAY
        table.storage.set_modified(path, epoch_ms(moment))
    return table


def planned(table: MemoryTable, cutoff: int) -> MetadataCleanupPlan:
    now = START + (cutoff + 1) * DAY - timedelta(hours=6)
    return plan_metadata_cleanup(
        table.storage, open_backfilled(table.storage), now_ms=epoch_ms(now)
    )


def commits_left(table: MemoryTable) -> list[int]:
    names = (re.fullmatch(r"_delta_log/(\d{20})\.json", path) for path in table.files())
    return sorted(int(name[1]) for name in names if name)


def test_checksums_that_state_an_older_protocol_break_no_protection() -> None:
    found = history()
    files, state = commits(found), states(found)
    for version in (5, START_OF_LOG, BOUNDARY):
        files |= classic_checkpoint(state[version], version)
    for version in range(END + 1):
        [content] = checksum(state[version], version).values()
        told = {**json.loads(content), "protocol": found[0][2]["protocol"]}
        files[f"_delta_log/{version:020}.crc"] = json.dumps(told).encode()
    with dated(files) as table:
        plan = planned(table, START_OF_LOG)
        assert plan.checkpoint is None
        assert "doesn't know the protocol of version 3" in (plan.reason or "")
        execute_metadata_cleanup(table.storage, plan)
        assert commits_left(table) == [*range(END + 1)]


# What the hint repeats of a checkpoint


def hinted(files: Files, version: int, **changes: Any) -> Files:
    """The hint to a V2 checkpoint, with its actions as somebody would like to have them."""
    top = f"_delta_log/{version:020}.checkpoint.{uuid.UUID(int=version)}.json"
    actions = [json.loads(line) for line in files[top].splitlines()]
    small = [action for action in actions if "sidecar" not in action]
    content = {
        "path": top.rpartition("/")[2],
        "sizeInBytes": len(files[top]),
        "modificationTime": 1,
        "nonFileActions": [
            next((each for each in changes["actions"] if each.keys() == action.keys()), action)
            for action in small
        ]
        if "actions" in changes
        else small,
        "sidecarFiles": [action["sidecar"] for action in actions if "sidecar" in action][
            : changes.get("sidecars")
        ],
    }
    hint = LastCheckpointHint(version=version, size=9, v2_checkpoint=content)
    return {"_delta_log/_last_checkpoint": hint.to_json().encode()}


def test_a_hint_that_repeats_other_properties_lets_nothing_go() -> None:
    """By the checkpoint the log is kept for thirty years; by what the hint repeats of it, for no time."""
    found = history({"delta.logRetentionDuration": "interval 1500 weeks"})
    files, state = commits(found), states(found)
    files |= v2_checkpoint(state[END - 1], END - 1, form="json", sidecars=2)
    short = metadata(configuration={"delta.logRetentionDuration": "interval 0 days"})
    files |= hinted(files, END - 1, actions=[short])
    with dated(files) as table:
        snapshot = table.delta().snapshot()
        # Who reads the table may take it for what it is.
        assert snapshot.properties.log_retention_ms == 0
        plan = planned(table, END)
        assert (plan.needed, plan.cutoff.commit) == (False, None)


def shares() -> tuple[Files, list[list[Action]]]:
    """A table whose newest checkpoint has two sidecars, of which the hint repeats one."""
    found: list[list[Action]] = [
        [protocol({"v2Checkpoint"}), metadata(), *(add(f"f{n}") for n in range(6))],
        [add("g")],
    ]
    files = commits(found) | v2_checkpoint(states(found)[0], 0, form="json", sidecars=2)
    files |= hinted(files, 0, sidecars=1)
    files |= {f"f{n}": b"x" for n in range(6)} | {"g": b"x"}
    return files, found


def test_a_hint_that_leaves_a_sidecar_out_has_no_file_vacuumed() -> None:
    files, found = shares()
    with dated(files) as table:
        for path in files:
            table.storage.set_modified(path, 1)
        assert table.delta().snapshot().num_files < 7  # the hint is believed by readers
        result = table.delta().vacuum()
        assert result.plan.files["path"].to_pylist() == []
        assert {path for path in table.files() if "_delta_log" not in path} == {
            *(f"f{n}" for n in range(6)),
            "g",
        }
        assert states(found)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_no_checkpoint_is_made_of_what_a_hint_repeats(policy: Any) -> None:
    files, found = shares()
    with dated(files) as table:
        assert table.delta().checkpoint(policy=policy).written
        table.storage.delete([commit_file(0), "_delta_log/_last_checkpoint"])
        assert state_of(table.delta().snapshot()) == states(found)[1].visible()


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_no_checkpoint_is_made_of_files_that_a_checksum_counts_twice(policy: Any) -> None:
    """Whoever has written the checkpoint wrong may have counted its files for the checksum."""
    found: list[list[Action]] = [[*history()[0][1:]], [add("g")]]
    found[0][1] = protocol({"v2Checkpoint"})
    state = states(found)
    files = commits(found)
    top = v2_checkpoint(state[0], 0, form="json", sidecars=1)
    [name] = [path for path in top if path.endswith(".json")]
    [sidecar] = [path for path in top if "_sidecars" in path]
    again = sidecar.replace(".parquet", "-again.parquet")
    rows = [json.loads(line) for line in top[name].splitlines()]
    [named] = [row["sidecar"] for row in rows if "sidecar" in row]
    rows.append({"sidecar": {**named, "path": again.rpartition("/")[2]}})
    files |= {name: lines(rows), sidecar: top[sidecar], again: top[sidecar]}
    twice = {"tableSizeBytes": 2, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    told = {**json.loads(checksum(state[0], 0)[f"_delta_log/{0:020}.crc"]), **twice}
    files[f"_delta_log/{0:020}.crc"] = json.dumps(told).encode()
    with dated(files) as table:
        with pytest.warns(match="holds the file 'f0' twice"):
            assert table.delta().checkpoint(policy=policy).written
        table.storage.delete([name, commit_file(0)])
        assert state_of(table.delta().snapshot()) == state[1].visible()
