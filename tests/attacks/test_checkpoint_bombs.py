"""Checkpoints that cost more than they are: rows repeated a million times, and thousands of damaged ones.

What is counted is the work: rows that are decoded, and listings. Memory is measured in a process of its
own.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import Action, MemoryTable, commits, lines, parquet, small_rows, states

ROWS = 1_000_000
HISTORY: list[list[Action]] = [[PROTOCOL, metadata(), add("a")], [add("b")]]
CHECKPOINT = f"_delta_log/{1:020}.checkpoint.parquet"

REPEATED: dict[str, Action] = {
    "protocol": PROTOCOL,
    "metaData": metadata(),
    "txn": {"txn": {"appId": "a" * 300, "version": 1}},
    "domainMetadata": {"domainMetadata": {"domain": "d", "configuration": "c" * 999}},
    "sidecar": {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}},
}
PLAIN = ("protocol", "metaData", "add")
CODECS = ["snappy", "zstd"]
"""The first one is read without pyarrow, as far as there are few rows."""


def bomb(action: Action, *, codec: str, rows: int = ROWS) -> bytes:
    """A checkpoint that is whole but for one row, which it has as often as that."""
    kinds = ("protocol", "metaData", "add", *(kind for kind in action if kind not in PLAIN))
    rest = [*small_rows(states(HISTORY)[1]), add("a"), add("b")]
    few = pq.read_table(io.BytesIO(parquet([*rest, action], kinds)))
    repeated = few.slice(len(rest)).take(pa.array([0] * 100_000))
    buffer = io.BytesIO()
    # A dictionary keeps a text once, and the file small.
    with pq.ParquetWriter(buffer, few.schema, compression=codec) as writer:
        writer.write_table(few.slice(0, len(rest)))
        for _ in range(rows // 100_000):
            writer.write_table(repeated)
    return buffer.getvalue()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that are decoded by pyarrow, slice by slice."""
    found: list[int] = []
    batches = ParquetSource.batches

    def counted(self: ParquetSource, *args: Any, **options: Any) -> Any:
        for batch in batches(self, *args, **options):
            found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(ParquetSource, "batches", counted)
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", REPEATED)
def test_a_row_that_comes_again_ends_the_reading(kind: str, codec: str, decoded: list[int]) -> None:
    """At most the first two row groups are decoded, of the column that tells actions apart."""
    data = bomb(REPEATED[kind], codec=codec, rows=300_000)
    with MemoryTable({**commits(HISTORY), CHECKPOINT: data}) as table:
        with pytest.warns(DeltaWarning, match=f"has more than one {kind} action"):
            snapshot = table.delta().snapshot()
        assert sorted(snapshot.files()["path"].to_pylist()) == ["a", "b"]
    assert sum(decoded) <= 100_005


READ = """
import json, re, sys, warnings
from pathlib import Path
from airflow_delta.engine import DeltaTable
warnings.simplefilter("ignore")
snapshot = DeltaTable(sys.argv[1]).snapshot()
names = sorted(snapshot.files(("path",))["path"].to_pylist())
# Not ru_maxrss, which begins with the memory of the process that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps([names, int(peak[1]) // 1024]))
"""


@pytest.mark.parametrize("kind", ["metaData", "txn"])
def test_a_small_file_takes_little_memory(kind: str, tmp_path: Path) -> None:
    data = bomb(REPEATED[kind], codec="zstd")
    assert len(data) < 600_000
    for path, content in {**commits(HISTORY), CHECKPOINT: data}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    found = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
        env=dict(os.environ),
    )
    names, megabytes = json.loads(found.stdout)
    assert names == ["a", "b"]
    assert megabytes < 400


ADD = {"stats": '{"numRecords":1,"x":"' + "s" * 900 + '"}'}
VECTORS = [
    {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": offset}
    | {"sizeInBytes": 40, "cardinality": 6}
    for offset in range(2000)
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("predicate", [None, pc.field("id") > 5], ids=["all", "some"])
def test_a_file_that_is_added_again_and_again_is_not_decoded(
    predicate: pc.Expression | None, codec: str, decoded: list[int]
) -> None:
    """Of ten row groups the keys of one are: neither statistics nor another group."""
    data = bomb(add("a", **ADD), codec=codec, rows=ROWS)
    with MemoryTable({**commits(HISTORY), CHECKPOINT: data}) as table:
        snapshot = table.delta().snapshot()
        decoded.clear()
        with pytest.warns(DeltaWarning, match="more than one action 'add' for a file"):
            found = snapshot.files(("path", "stats"), predicate)
        assert sorted(found["path"].to_pylist()) == ["a", "b"]
    assert sum(decoded) <= 65_536 + 10


def test_many_vectors_of_one_file_are_no_repetition(
    monkeypatch: pytest.MonkeyPatch, decoded: list[int]
) -> None:
    """Tombstones may well be: each deletion vector that a file had is a logical file of its own."""
    monkeypatch.setattr("airflow_delta.engine.arrow.parquet.repeated_rows._FEW", 100)
    history: list[list[Action]] = [[PROTOCOL, metadata(), add("b")]]
    gone = [{"remove": {**remove("a")["remove"], "deletionVector": v}} for v in VECTORS]
    rows = [*small_rows(states(history)[0]), add("b"), *gone]
    path = f"_delta_log/{0:020}.checkpoint.parquet"
    table = pq.read_table(io.BytesIO(parquet(rows)))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    with MemoryTable({**commits(history), path: buffer.getvalue()}) as stored:
        found = stored.delta().snapshot().tombstones(include_expired=True)
        assert found.num_rows == len(VECTORS)
        assert found["path"].unique().to_pylist() == ["a"]
    assert sum(decoded) > 2 * len(VECTORS)  # once for the keys


# Thousands of damaged checkpoints


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("pages", [True, False], ids=["from a name on", "all at once"])
def test_damaged_checkpoints_cost_one_listing_together(
    first: int, pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing that finds the newest one is the only other one; commits or version 1 are left."""
    count = 40
    history: list[list[Action]] = [[PROTOCOL, metadata(), add("f0")]]
    history += [[add(f"f{version}")] for version in range(1, count)]
    files = commits(history)
    for version in range(first + 1, count):
        files[f"_delta_log/{version:020}.checkpoint.parquet"] = b"PAR1 damaged PAR1"
    if first:
        files[CHECKPOINT] = parquet([*small_rows(states(history)[1]), add("f0"), add("f1")])
        del files[f"_delta_log/{0:020}.json"]
    with MemoryTable(files) as table:
        monkeypatch.setattr(
            MemoryStorage,
            "capabilities",
            replace(MemoryStorage.capabilities, start_after=pages),
        )
        storage = FaultyStorage(table.storage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeltaWarning)
            snapshot = Snapshot(storage, load_segment(storage))
            assert snapshot.files().num_rows == count
        listings = [call for call in storage.calls if call.operation == "list"]
        assert len(listings) == 2
        assert len(snapshot.state.excluded) == count - 1 - first


def test_where_nothing_else_is_left_the_damage_is_told() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        table.storage.delete([f"_delta_log/{0:020}.json"])
        twice = [*small_rows(states(HISTORY)[1]), PROTOCOL, add("a"), add("b")]
        table.put({CHECKPOINT: parquet(twice)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeltaWarning)
            with pytest.raises(CorruptLogError, match=r"not counting .*checkpoint\.parquet"):
                DeltaTable(table.uri).snapshot()


def test_a_json_top_level_is_held_to_the_same_rule() -> None:
    name = f"_delta_log/{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    top = [{"checkpointMetadata": {"version": 1}}, *small_rows(states(HISTORY)[1])]
    files = {**commits(HISTORY), name: lines([*top, metadata(), add("a")])}
    with (
        MemoryTable(files) as table,
        pytest.warns(DeltaWarning, match="has more than one metaData action"),
    ):
        assert table.delta().snapshot().files().num_rows == 2
