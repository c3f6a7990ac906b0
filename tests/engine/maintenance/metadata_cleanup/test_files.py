"""What is neither commit nor checkpoint: sidecars, files in the making, and others in a log's folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import MetadataCleanupPlan
from airflow_delta.engine.storage.hidden import make_hidden_name
from tests.cleanup_tables import (
    LAST,
    NOW,
    START,
    UUIDS,
    Log,
    clean_up,
    epoch_ms,
    made,
    planned,
)
from tests.faulty_storage import Fault, FaultyStorage
from tests.laws.histories import protocol
from tests.table_builder import (
    Files,
    MemoryTable,
    classic_checkpoint,
    lines,
    small_rows,
    state_of,
    states,
    v2_checkpoint,
)

SIDECARS = "_delta_log/_sidecars"
MIDNIGHT = NOW.replace(hour=0)
OLD = MIDNIGHT - timedelta(days=1)
"""The youngest that is a day old as of midnight."""

V2 = Log((3, 5, 7), "v2 json")
STATES = states(V2.history)


@contextmanager
def aged(log: Log) -> Iterator[MemoryTable]:
    """A table with a log whose sidecars are all old."""
    with made(log) as table:
        for info in list(table.storage.list(SIDECARS)):
            table.storage.set_modified(info.path, epoch_ms(START))
        yield table


def put(table: MemoryTable, files: Files, moment: datetime = START) -> None:
    table.put(files)
    for path in files:
        table.storage.set_modified(path, epoch_ms(moment))


def gone(table: MemoryTable) -> set[str]:
    """What a cleanup of the table deletes, beside commits and the like."""
    before = table.files()
    clean_up(table.delta())
    return {
        path
        for path in before.keys() - table.files().keys()
        if not re.fullmatch(r"_delta_log/[0-9]{20}\..*", path)
    }


def sidecars_of(version: int) -> set[str]:
    return {path for path in v2_checkpoint(STATES[version], version, form="json", sidecars=2)
            if path.startswith(SIDECARS)}  # fmt: skip


def kept_of(plan: MetadataCleanupPlan, kind: str) -> list[tuple[int, str]]:
    return [(kept.count, kept.reason) for kept in plan.keeps if kept.kind == kind]


# Sidecars


@pytest.mark.parametrize("form", ["v2 json", "v2 parquet", "v2 of the classic name"])
def test_sidecars_that_no_checkpoint_refers_to_are_deleted(form: str) -> None:
    with aged(Log((3, 5, 7), form)) as table:
        put(table, {f"{SIDECARS}/stray.parquet": b"x", f"{SIDECARS}/notes.txt": b"x"}, OLD)
        plan = planned(table.delta())
        assert gone(table) == {
            *sidecars_of(3),
            f"{SIDECARS}/stray.parquet",
        }
        assert kept_of(plan, "sidecars") == [(4, "remaining checkpoints refer to them")]
        assert state_of(table.delta().snapshot()) == STATES[LAST].visible()


@pytest.mark.parametrize(
    ("moment", "goes"),
    [
        (OLD, True),
        (OLD + timedelta(milliseconds=1), False),
        (MIDNIGHT, False),
        (NOW, False),
        (NOW + timedelta(days=3), False),
    ],
)
def test_a_sidecar_younger_than_a_day_may_belong_to_a_checkpoint_in_the_making(
    moment: datetime, goes: bool
) -> None:
    with made(Log((5,))) as table:
        put(table, {f"{SIDECARS}/new.parquet": b"x"}, moment)
        table.storage.set_modified(f"{SIDECARS}/new.parquet", int(moment.timestamp() * 1000))
        plan = planned(table.delta())
        assert [count for count, _ in kept_of(plan, "sidecars")] == ([] if goes else [1])
        assert gone(table) == ({f"{SIDECARS}/new.parquet"} if goes else set())


def damaged(path: str) -> bytes:
    return b"{" if path.endswith("json") else b"PAR1"


def leads_elsewhere(path: str) -> bytes:
    """A sidecar in another folder."""
    sidecar = {"path": "../../else/x.parquet", "sizeInBytes": 1, "modificationTime": 1}
    return lines([{"checkpointMetadata": {"version": 7}}, {"sidecar": sidecar}])


def of_the_future(path: str) -> bytes:
    """Of a protocol that may name sidecars in ways of its own."""
    rows = [row for row in small_rows(STATES[7]) if "protocol" not in row]
    future = protocol({"v2Checkpoint", "sidecarsOfSidecars"})
    return lines([{"checkpointMetadata": {"version": 7}}, future, *rows])


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (damaged, "isn't readable as JSON"),
        (leads_elsewhere, "expected a file in _delta_log/_sidecars"),
        (of_the_future, "doesn't know the protocol of the checkpoint.*sidecarsOfSidecars"),
    ],
)
def test_if_a_checkpoint_cannot_be_read_no_sidecar_is_deleted(
    broken: Callable[[str], bytes], reason: str
) -> None:
    """Even one that isn't the newest, and that nobody looks at."""
    with aged(V2) as table:
        (path,) = (p for p in table.files() if p.startswith(f"_delta_log/{7:020}.checkpoint"))
        put(table, classic_checkpoint(STATES[LAST], LAST))
        put(table, {path: broken(path)})
        plan = planned(table.delta())
        ((count, found),) = kept_of(plan, "sidecars")
        assert count == 6
        assert re.search(reason, found)
        assert path in found
        assert gone(table) == set()
        assert sidecars_of(3) <= table.files().keys()


def test_a_sidecar_stays_if_a_concurrent_checkpoint_refers_to_it() -> None:
    """Whoever writes it has made it from the checkpoint before, of which it keeps a part."""
    with aged(V2) as table:
        plan = planned(table.delta())
        assert plan.count("sidecars") == 2
        again, _ = sorted(sidecars_of(3))
        top = [{"checkpointMetadata": {"version": 8}}, *small_rows(STATES[8])]
        sidecar = {"path": again.rpartition("/")[2], "sizeInBytes": 1, "modificationTime": 1}
        put(
            table,
            {f"_delta_log/{8:020}.checkpoint.{UUIDS[0]}.json": lines([*top, {"sidecar": sidecar}])},
        )
        result = execute_metadata_cleanup(table.storage, plan)
        assert (result.num_spared, result.num_deleted) == (1, plan.num_files - 1)
        assert sidecars_of(3) & table.files().keys() == {again}


def test_no_sidecar_is_deleted_if_a_concurrent_checkpoint_cannot_be_read() -> None:
    with aged(V2) as table:
        plan = planned(table.delta())
        put(table, {f"_delta_log/{8:020}.checkpoint.{UUIDS[0]}.json": b"{"})
        assert execute_metadata_cleanup(table.storage, plan).num_spared == 2
        assert sidecars_of(3) <= table.files().keys()


def test_a_checkpoint_that_a_concurrent_cleanup_deleted_refers_to_nothing() -> None:
    with aged(V2) as table:
        (path,) = (p for p in table.files() if p.startswith(f"_delta_log/{7:020}.checkpoint"))
        put(table, classic_checkpoint(STATES[LAST], LAST))
        delta = table.delta()
        delta.__dict__["storage"] = FaultyStorage(
            table.storage,
            Fault("read", suffix=path[-20:], meanwhile=lambda: table.storage.delete([path])),
        )
        plan = planned(delta)
        assert path not in table.files()
        assert {*sidecars_of(3), *sidecars_of(7)} == {
            p for group in plan.deletes if group.kind == "sidecars" for p in group.paths
        }


def test_where_all_sidecars_are_young_no_checkpoint_is_read() -> None:
    with aged(V2) as table:
        for path in sidecars_of(3) | sidecars_of(5) | sidecars_of(7):
            table.storage.set_modified(path, epoch_ms(NOW))
        table.storage.delete([f"_delta_log/{3:020}.json"])  # it begins above
        (path,) = (p for p in table.files() if p.startswith(f"_delta_log/{7:020}.checkpoint"))
        put(table, {path: b"{"} | classic_checkpoint(STATES[LAST], LAST))
        assert [count for count, _ in kept_of(planned(table.delta()), "sidecars")] == [6]


# Files in the making

UNFINISHED = [
    f"_delta_log/{make_hidden_name(f'{4:020}.json')}",
    f"_delta_log/{make_hidden_name('_last_checkpoint')}",
    f"_delta_log/.{4:020}.json.{UUIDS[0]}.tmp",
    f"_delta_log/..{4:020}.json.{UUIDS[0]}.tmp.crc",
    f"_delta_log/_commit_{UUIDS[0]}.json.tmp",
    f"_delta_log/.tmp/{LAST:020}.json.{UUIDS[0]}",
    f"_delta_log/_commits/{make_hidden_name(f'{7:020}.{UUIDS[0]}.json')}",
    f"_delta_log/_sidecars/{make_hidden_name('x.parquet')}",
]
NOT_OURS = [
    "_delta_log/notes.txt",
    "_delta_log/.hidden",
    "_delta_log/.s3-optimization-0",
    "_delta_log/_last_vacuum_info",
    "_delta_log/_commit_notes.json",
    "_delta_log/_staged_commits/x.json",
    "_delta_log/_changelog/x",
    f"_delta_log/{3:019}.json",
    f"_delta_log/{3:020}.json.bak",
    f"_delta_log/_commits/{1:020}.json",
    f"_delta_log/_commits/{1:020}.{UUIDS[0]}.json.bak",
    "_delta_log/_commits/notes",
    "_delta_log/.tmp/notes",
    f"_delta_log/.tmp/{3:020}.json",
    f"_delta_log/.tmp/{3:020}.json.bak",
    f"_delta_log/.tmp/id_rsa.{UUIDS[0]}",
    "_delta_log/_sidecars/notes.txt",
    "_delta_log/_sidecars/x.parquet.bak",
    "_delta_log/_sidecars/.hidden",
    f"part-{4:020}.json",
    f".{4:020}.json.tmp",
    f"sub/_delta_log/{1:020}.json",
]


def test_temporary_files_are_deleted_when_they_are_a_day_old() -> None:
    with made(Log((5,))) as table:
        put(table, dict.fromkeys(UNFINISHED, b"half"), OLD)
        put(table, dict.fromkeys(NOT_OURS, b"x"), START)
        assert gone(table) == {*UNFINISHED}
    with made(Log((5,))) as table:
        put(table, dict.fromkeys(UNFINISHED, b"half"), OLD + timedelta(seconds=1))
        plan = planned(table.delta())
        assert [count for count, _ in kept_of(plan, "files in the making")] == [len(UNFINISHED) - 1]
        assert gone(table) == set()


def test_what_is_to_become_the_next_version_stays() -> None:
    """From it a reader completes the commit of a writer that has died."""
    pending = f"_delta_log/.tmp/{LAST + 1:020}.json.{UUIDS[0]}"
    with made(Log((5,))) as table:
        put(table, {pending: b"{}"}, START)
        assert gone(table) == set()


def test_checksums_of_hadoop_are_deleted_with_their_files() -> None:
    version = f"{3:020}"
    beside = {
        f"_delta_log/.{version}.json.crc": True,
        f"_delta_log/.{version}.crc.crc": True,
        f"_delta_log/.{version}.checkpoint.parquet.crc": True,
        f"_delta_log/.{version}.{5:020}.compacted.json.crc": True,
        f"_delta_log/.{5:020}.json.crc": False,
        f"_delta_log/.{5:020}.{6:020}.compacted.json.crc": True,
        f"_delta_log/.{6:020}.{7:020}.compacted.json.crc": False,
        f"_delta_log/_commits/.{5:020}.{UUIDS[0]}.json.crc": True,
        f"_delta_log/_commits/.{6:020}.{UUIDS[0]}.json.crc": False,
        "_delta_log/._last_checkpoint.crc": False,
        "_delta_log/.notes.crc": False,
    }
    with made(Log((3, 5), "v2 json")) as table:
        for number, path in enumerate(sorted(sidecars_of(3) | sidecars_of(5))):
            folder, _, name = path.rpartition("/")
            beside[f"{folder}/.{name}.crc"] = number < 2
        put(table, dict.fromkeys(beside, b"crc"))
        assert gone(table) == {*sidecars_of(3), *(path for path, goes in beside.items() if goes)}
