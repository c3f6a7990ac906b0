"""A previous checkpoint that holds a file twice, or not the files that it must: it isn't passed on."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.checkpoint import action_rows, incremental_v2
from airflow_delta.engine.checkpoint.base_check import check_expected_files
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.sidecars import layout as sidecar_layout
from airflow_delta.engine.checkpoint.write import ExpectedFiles
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, InvalidTableError
from airflow_delta.engine.log.files import checkpoint_path, checksum_path
from airflow_delta.engine.maintenance.checkpoint.execution import CheckpointResult
from tests.engine.checkpoint.contents import add_row, add_table, remove_row, remove_table
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

HISTORY: list[list[Action]] = [
    [protocol({"v2Checkpoint"}), metadata(), *(add(f"f{n}", size=n) for n in range(1, 9))],
    [add("new", size=100)],
    [add("newer", size=100), remove("f3", deletionTimestamp=FAR_FUTURE_MS)],
]
STATES = states(HISTORY)
HINT = "_delta_log/_last_checkpoint"


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    with MemoryTable(commits(HISTORY)) as table:
        yield table


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups and sidecars of three files."""
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 3)
    monkeypatch.setattr(sidecar_layout, "SIDECAR_ROWS", 3)


def known() -> DistinctFiles:
    return DistinctFiles(path="_delta_log/7.checkpoint.parquet", version=7, table="t")


def test_files_are_told_from_each_other() -> None:
    distinct = known()
    for adds in ([1, 2], [], [4, 3]):
        distinct.meet(add_table([add_row(n) for n in adds]))
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    distinct.meet(add_table([add_row(1, deletionVector=vector)]))
    distinct.meet(remove_table([remove_row(1)]))


AGAIN = add_row(2)["path"]


@pytest.mark.parametrize(
    "tables",
    [
        [add_table([add_row(n) for n in (1, 2, 3, 2)])],
        [add_table([add_row(n) for n in numbers]) for numbers in ((1, 2, 3), (5, 2))],
        [
            add_table([add_row(n) for n in (1, 2, 3)]),
            remove_table([remove_row(5), remove_row(2, path=AGAIN)]),
        ],
    ],
    ids=["together", "later", "as a remove"],
)
def test_a_file_that_comes_again_is_told_of(tables: list[Any]) -> None:
    distinct = known()
    for rows in tables[:-1]:
        distinct.meet(rows)
    with pytest.raises(CorruptLogError, match=f"holds the file '{AGAIN}' twice") as raised:
        distinct.meet(tables[-1])
    assert raised.value.path == "_delta_log/7.checkpoint.parquet"


@pytest.mark.parametrize(
    ("told", "agrees"),
    [
        (ExpectedFiles(), True),
        (ExpectedFiles(2, 30, "x.crc"), True),
        (ExpectedFiles(3, 30, "x.crc"), False),
        (ExpectedFiles(2, 31, "x.crc"), False),
    ],
)
def test_what_a_checksum_tells_is_compared(told: ExpectedFiles, agrees: bool) -> None:
    def compare() -> None:
        check_expected_files(told, num_adds=2, adds_size=30, path="c", version=7, table="t")

    if agrees:
        compare()
        return
    with pytest.raises(CorruptLogError, match=r"holds 2 live files of 30 bytes, and by x\.crc"):
        compare()


def with_a_sidecar_twice(table: MemoryTable, *, tagged: bool) -> None:
    """A checkpoint of version 0, whose first sidecar another one repeats."""
    if tagged:
        assert table.delta().checkpoint(0, policy="v2").written
        table.storage.delete([HINT, checksum_path(0)])
        content = table.storage.read(checkpoint_path(0))
        top = parquet_rows(content)
        table.storage.delete([checkpoint_path(0)])
    else:
        files = v2_checkpoint(STATES[0], 0, form="json", sidecars=2)
        table.put(files)
        (name,) = (path for path in files if path.endswith(".json"))
        top = [json.loads(line) for line in files[name].splitlines()]
    sidecar = next(row["sidecar"] for row in top if "sidecar" in row)
    again = f"again-{sidecar['path']}"
    folder = "_delta_log/_sidecars"
    table.put({f"{folder}/{again}": table.storage.read(f"{folder}/{sidecar['path']}")})
    top.append({"sidecar": {**sidecar, "path": again}})
    name = f"_delta_log/{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    table.storage.delete([p for p in table.files() if "checkpoint" in p and p.endswith(".json")])
    table.put({name: b"".join(json.dumps(row).encode() + b"\n" for row in top)})


def parquet_rows(content: bytes) -> list[dict[str, Any]]:
    rows = pq.read_table(io.BytesIO(content)).to_pylist(maps_as_pydicts="strict")
    return [{kind: present(row) for kind, row in r.items() if row is not None} for r in rows]


def present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def with_a_part_twice(table: MemoryTable, *, ours: bool) -> None:
    """A checkpoint of version 0 in two parts that are the same."""
    if ours:
        assert table.delta().checkpoint(0, policy="classic").written
        content = table.storage.read(checkpoint_path(0))
        table.storage.delete([HINT, checksum_path(0), checkpoint_path(0)])
    else:
        (content,) = multipart_checkpoint(STATES[0], 0, parts=1).values()
    stem = f"_delta_log/{0:020}.checkpoint"
    table.put({f"{stem}.{part:010}.{2:010}.parquet": content for part in (1, 2)})


DAMAGES: dict[str, Any] = {
    "sidecars of others": lambda table: with_a_sidecar_twice(table, tagged=False),
    "sidecars of ours": lambda table: with_a_sidecar_twice(table, tagged=True),
    "parts of others": lambda table: with_a_part_twice(table, ours=False),
    "parts of ours": lambda table: with_a_part_twice(table, ours=True),
}


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_base_that_holds_a_file_twice_is_passed_over(
    table: MemoryTable, damage: str, policy: Any
) -> None:
    DAMAGES[damage](table)
    twice = "more than one protocol" if "parts" in damage else r"holds the file 'f\d' twice"
    with pytest.warns(DeltaWarning, match=rf"can't be used \(.* {twice}"):
        result = table.delta().checkpoint(policy=policy)
    rely_on(table, result)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_where_there_is_nothing_else_it_is_an_error(
    table: MemoryTable, damage: str, policy: Any
) -> None:
    DAMAGES[damage](table)
    table.storage.delete([commit_file(0)])
    before = table.files()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        with pytest.raises(CorruptLogError):
            table.delta().checkpoint(policy=policy)
    assert table.files() == before


def rely_on(table: MemoryTable, result: CheckpointResult) -> None:
    """The new checkpoint holds the state, by itself; and the checksum beside it tells so."""
    assert (result.written, result.num_files) == (True, len(STATES[2].files))
    told = json.loads(table.storage.read(checksum_path(2)))
    sizes = [file["size"] for file in STATES[2].files.values()]
    assert (told["numFiles"], told["tableSizeBytes"]) == (len(sizes), sum(sizes))
    table.storage.delete([p for p in table.files() if f"{0:020}" in p and "_sidecars" not in p])
    table.storage.delete([commit_file(1), commit_file(2)])
    assert state_of(table.delta().snapshot()) == STATES[2].visible()


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_base_that_its_checksum_contradicts_is_passed_over(
    table: MemoryTable, policy: Any
) -> None:
    """It has lost a file, which one can't see in it."""
    assert table.delta().checkpoint(0, policy=policy).written
    told = json.loads(table.storage.read(checksum_path(0)))
    table.put({checksum_path(0): json.dumps({**told, "numFiles": 9}).encode()})
    with pytest.warns(DeltaWarning, match=r"holds 8 live files of 36 bytes, and by .*crc .* 9 of"):
        result = table.delta().checkpoint(policy=policy)
    rely_on(table, result)


@pytest.mark.parametrize("kind", ["classic", "v2"])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_base_without_a_checksum_is_looked_at_once(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch, kind: str, policy: Any
) -> None:
    met: list[int] = []
    meet = DistinctFiles.meet

    def counting(self: DistinctFiles, actions: Any) -> None:
        met.append(actions.num_rows)
        meet(self, actions)

    monkeypatch.setattr(DistinctFiles, "meet", counting)
    state = STATES[0]
    classic = kind == "classic"
    table.put(
        classic_checkpoint(state, 0)
        if classic
        else v2_checkpoint(state, 0, form="json", sidecars=2)
    )
    first = table.delta().checkpoint(1, policy=policy)
    assert first.written
    assert sum(met) == len(state.files)
    met.clear()
    second = table.delta().checkpoint(2, policy=policy)
    assert second.plan.incremental
    assert met == []
    rely_on(table, second)


def test_sizes_that_the_tags_of_a_sidecar_tell_wrong(table: MemoryTable) -> None:
    """What is told of a sidecar that is written again is compared with what is in it."""
    with_a_sidecar_twice(table, tagged=True)
    (name,) = (path for path in table.files() if path.endswith("43a11.json"))
    top = [json.loads(line) for line in table.storage.read(name).splitlines()][:-1]
    for row in top:
        tags = row.get("sidecar", {}).get("tags", {})
        if tags.get("minPath", "z") <= "f3" <= tags.get("maxPath", ""):
            tags["addsSizeSum"] = str(int(tags["addsSizeSum"]) + 1)
    table.put({name: b"".join(json.dumps(row).encode() + b"\n" for row in top)})
    before = table.files()
    with pytest.raises(InvalidTableError, match=r"must hold 9 adds of 234 bytes .* 9 adds of 233"):
        table.delta().checkpoint(policy="v2")
    assert table.files() == before


def zeroed(table: MemoryTable) -> str:
    """Damage a sidecar of version 0 where it isn't seen without reading it."""
    path = min(p for p in table.files() if "_sidecars" in p)
    content = bytearray(table.storage.read(path))
    content[8:40] = bytes(32)
    table.put({path: bytes(content)})
    return path


def test_damage_in_a_sidecar_that_is_kept_shows_when_the_name_is_classic(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be passed on until nothing is left to make it from."""
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", 1)
    often = metadata(configuration={"delta.checkpointInterval": "1"})
    history = [
        [HISTORY[0][0], often, *HISTORY[0][2:]],
        *([add(f"new{n}", size=n)] for n in range(1, 12)),
    ]
    table.put(commits(history))
    assert table.delta().checkpoint(0, policy="v2").path == checkpoint_path(0)
    sidecar = zeroed(table)
    for version in range(1, 10):
        table.delta().checkpoint(version, policy="v2")
    with pytest.warns(DeltaWarning, match=rf"can't be used \({sidecar} is damaged"):
        result = table.delta().checkpoint(10, policy="v2")
    assert result.path == checkpoint_path(10)
    assert (result.written, result.sidecars_reused) == (True, 0)
    assert state_of(table.delta().snapshot(version=10)) == states(history)[10].visible()


def test_a_sidecar_without_checksums_of_its_pages_is_decoded_instead(table: MemoryTable) -> None:
    """As those of other writers may be."""
    table.put(v2_checkpoint(STATES[0], 0, form="json", sidecars=2))
    assert table.delta().checkpoint(1, policy="v2").path == checkpoint_path(1)
    assert state_of(table.delta().snapshot(version=1)) == STATES[1].visible()
