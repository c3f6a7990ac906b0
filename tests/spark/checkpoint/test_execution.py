"""Checkpoints by Spark: the state that they hold, and what is seen of one that doesn't come to its end."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint.v2_write import publish_top_level
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    StorageError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.spark.checkpoint import execution as checkpointing
from airflow_delta.spark.checkpoint import log_parts, sidecar_run
from airflow_delta.spark.checkpoint.action_counts import ActionCounts
from airflow_delta.spark.checkpoint.execution import write_checkpoint
from airflow_delta.spark.checkpoint.key_shuffle import ByHash, ByRange, StorageAddress
from airflow_delta.spark.checkpoint.sidecar_run import SidecarRun
from tests.deep import deep_but_for
from tests.log_builder import add, metadata, remove
from tests.spark.conftest import INTERPRETED, SETTINGS
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    file_rows,
    multipart_checkpoint,
    parquet,
    state_of,
    states,
    v2_checkpoint,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEATURES = ["deletionVectors", "v2Checkpoint"]
PROTOCOL: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": FEATURES,
        "writerFeatures": [*FEATURES, "domainMetadata"],
    }
}
LAST = 7
BASE = 4


def vector(number: int) -> Action:
    return {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": number,
        "sizeInBytes": 36,
        "cardinality": 2,
    }


def history() -> list[list[Action]]:
    """Eight commits: files added, removed, added again, given deletion vectors; and all else."""
    chance = random.Random(7)
    live: dict[str, Action] = {}
    made = []
    for version in range(LAST + 1):
        actions: list[Action] = []
        for path in chance.sample(sorted(live), min(len(live), 5)):
            old = live.pop(path)["add"]
            kept = {name: old[name] for name in ("deletionVector",) if name in old}
            time = chance.choice([1, FAR_FUTURE_MS, FAR_FUTURE_MS + version])
            actions.append(remove(path, deletionTimestamp=time, **kept))
            if chance.random() < 0.5:
                live[path] = add(path, size=old["size"], deletionVector=vector(version))
                actions.append(live[path])
        names = [f"p={chance.randrange(3)}/{version}-{n}.parquet" for n in range(12)]
        # Gone for some time, perhaps, and there again.
        names += [f"p=9/{chance.randrange(3)}.parquet"]
        for number, path in enumerate(names):
            if path not in live:
                live[path] = add(
                    path,
                    size=100 * version + number,
                    partitionValues={"p": path[2]},
                    stats=f'{{"numRecords":{number}}}',
                    tags={"of": str(version)},
                )
                actions.append(live[path])
        actions.append({"txn": {"appId": f"app{version % 3}", "version": version}})
        domain = {"domain": f"d{version % 2}", "configuration": str(version), "removed": False}
        actions.append({"domainMetadata": {**domain, "removed": version == LAST}})
        made.append(actions)
    configuration = {"delta.checkpoint.writeStatsAsStruct": "true"}
    made[0] = [PROTOCOL, metadata(configuration=configuration), *made[0]]
    return made


HISTORY = history()
STATES = states(HISTORY)
TAIL: Files = {commit_file(v): commits(HISTORY)[commit_file(v)] for v in range(BASE + 1, LAST + 1)}
LOGS: dict[str, Callable[[], Files]] = {
    "commits": lambda: commits(HISTORY),
    "V1": lambda: classic_checkpoint(STATES[BASE], BASE) | TAIL,
    "parts": lambda: multipart_checkpoint(STATES[BASE], BASE, parts=3) | TAIL,
    "V2 in JSON": lambda: v2_checkpoint(STATES[BASE], BASE, form="json", sidecars=0) | TAIL,
    "V2 and sidecars": lambda: v2_checkpoint(STATES[BASE], BASE, form="parquet", sidecars=2) | TAIL,
    "compaction": lambda: commits(HISTORY) | compaction(STATES[BASE], BASE, expired=True),
}


@pytest.fixture(autouse=True)
def many_small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut these small logs as large ones are: into several parts, for several partitions."""
    monkeypatch.setattr(log_parts, "_RUN_BYTES", 1)
    monkeypatch.setattr(log_parts, "_SHARE_BYTES", 8_000)
    monkeypatch.setattr(sidecar_run, "_PARTITION_ROWS", 60)


def table_of(files: Files, folder: Path) -> Path:
    table = folder / "table"
    for path, content in files.items():
        (table / path).parent.mkdir(parents=True, exist_ok=True)
        (table / path).write_bytes(content)
    return table


def log_of(table: Path) -> dict[str, bytes]:
    log = table / "_delta_log"
    return {str(f.relative_to(log)): f.read_bytes() for f in log.rglob("*") if f.is_file()}


def sidecars_of(table: Path) -> list[str]:
    return [name for name in log_of(table) if name.startswith("_sidecars/")]


def state_by_checkpoint(table: Path, path: str) -> State:
    """What the checkpoint tells when nothing but it and its sidecars is left of the log."""
    for file in (table / "_delta_log").iterdir():
        if file.is_file() and file.name != Path(path).name:
            file.unlink()
    return state_of(DeltaTable(str(table)).snapshot())


@pytest.mark.parametrize(
    ("log", "policy"),
    [
        pytest.param("commits", "v2", marks=pytest.mark.deep),
        ("V1", "classic"),
        pytest.param("V1", "v2", marks=pytest.mark.deep),
        pytest.param("parts", "v2", marks=pytest.mark.deep),
        ("V2 in JSON", "v2"),
        pytest.param("V2 and sidecars", "classic", marks=pytest.mark.deep),
        pytest.param("compaction", "classic", marks=pytest.mark.deep),
    ],
)
def test_both_engines_give_the_state_that_brute_force_gives(
    spark: SparkSession, tmp_path: Path, log: str, policy: Any
) -> None:
    files = LOGS[log]()
    table = table_of(files, tmp_path)
    before = set(sidecars_of(table))
    result = write_checkpoint(spark, str(table), policy=policy)
    assert (result.written, result.version, result.kind) == (True, LAST, policy)
    expected = STATES[LAST].visible()
    assert result.num_files == len(expected.files)
    new = set(sidecars_of(table)) - before
    assert len(new) == result.sidecars_written
    small = 2 + len(expected.transactions) + len(expected.domains) + (policy == "v2") + len(new)
    assert result.num_actions == len(expected.files) + len(expected.tombstones) + small
    # Adds and removes of each of several partitions; and all in one file where V1 is asked for.
    assert (len(new) > 2) == (policy == "v2")
    with MemoryTable(files) as same:
        assert same.delta().checkpoint().written
        assert state_of(same.delta().snapshot()) == expected
    for name in {*new, *([] if new else [Path(result.path).name])}:
        adds = pq.ParquetFile(table / "_delta_log" / name).schema_arrow.field("add").type
        assert adds.get_field_index("stats_parsed") >= 0, "delta.checkpoint.writeStatsAsStruct"
    # Readers are pointed to it, and a second one isn't written.
    log_after = log_of(table)
    pointed = json.loads(log_after["_last_checkpoint"])
    assert (pointed["version"], pointed["numOfAddFiles"]) == (LAST, result.num_files)
    again = write_checkpoint(spark, str(table))
    assert (again.written, again.path, again.kind) == (False, result.path, policy)
    assert "already has a complete checkpoint" in again.plan.reason
    assert log_of(table) == log_after
    assert state_by_checkpoint(table, result.path) == expected


def test_a_damaged_checkpoint_is_replaced_and_one_before_it_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(
        commits(HISTORY) | v2_checkpoint(STATES[BASE], BASE, form="json", sidecars=1), tmp_path
    )
    ((name, content),) = classic_checkpoint(STATES[LAST], LAST).items()
    # Where only adds are: whoever opens the table finds nothing wrong.
    start = pq.read_metadata(io.BytesIO(content)).row_group(5).column(0).data_page_offset
    (table / name).write_bytes(content[:start] + bytes(2000) + content[start + 2000 :])
    (sidecar,) = sidecars_of(table)
    (table / "_delta_log" / sidecar).write_bytes(b"PAR1")
    with pytest.warns(DeltaWarning, match="can't be used"):
        result = write_checkpoint(spark, str(table))
    assert (result.written, result.path) == (True, name)
    assert "is damaged" in result.plan.reason
    assert state_by_checkpoint(table, result.path) == STATES[LAST].visible()


@pytest.mark.parametrize("policy", deep_but_for(["classic", "v2"], "v2"))
def test_a_base_that_holds_files_twice_is_left_out(
    spark: SparkSession, tmp_path: Path, policy: Any
) -> None:
    (content,) = multipart_checkpoint(STATES[BASE], BASE, parts=1).values()
    again = parquet(file_rows(STATES[BASE].visible()))
    stem = f"_delta_log/{BASE:020}.checkpoint"
    parts = {f"{stem}.{n:010}.{2:010}.parquet": c for n, c in ((1, content), (2, again))}
    table = table_of(commits(HISTORY) | parts, tmp_path)
    with pytest.warns(DeltaWarning, match=r"can't be used \(.* holds the file '.*' twice"):
        result = write_checkpoint(spark, str(table), policy=policy)
    assert result.written
    assert state_by_checkpoint(table, result.path) == STATES[LAST].visible()


def test_a_broken_commit_is_a_typed_error_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(LOGS["V1"](), tmp_path)
    # Broken where only whoever reads file actions looks.
    broken = table / commit_file(LAST - 1)
    broken.write_bytes(broken.read_bytes() + b'{"add":{"path":7}}\n')
    log = log_of(table)
    with pytest.raises(CorruptLogError, match=broken.name) as raised:
        write_checkpoint(spark, str(table))
    assert raised.value.version == LAST - 1
    assert log_of(table) == log


def test_what_differs_from_the_count_is_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(commits(HISTORY), tmp_path)
    log, count = log_of(table), checkpointing.count_actions

    def one_more(*arguments: Any, **options: Any) -> ActionCounts:
        counts = count(*arguments, **options)
        return replace(counts, adds=counts.adds + 1)

    monkeypatch.setattr(checkpointing, "count_actions", one_more)
    with pytest.raises(InvalidTableError, match="was not written"):
        write_checkpoint(spark, str(table), policy="v2")
    assert log_of(table) == log


@pytest.mark.parametrize(
    ("policy", "wrong", "message"),
    [
        (
            "v2",
            {"numFiles": 99},
            r"by _delta_log/0+7\.crc the version has 99\. .* delete that file",
        ),
        pytest.param(
            "classic",
            {"tableSizeBytes": 5},
            r"bytes in live files, and by .*\.crc the version has 5\.",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_what_differs_from_the_version_checksum_is_not_published(
    spark: SparkSession, tmp_path: Path, policy: Any, wrong: dict[str, int], message: str
) -> None:
    table = table_of(LOGS["V1"](), tmp_path)
    files = STATES[LAST].visible().files
    right = {"numFiles": len(files), "tableSizeBytes": sum(file["size"] for file in files.values())}
    right |= {"numMetadata": 1, "numProtocol": 1}
    checksum = table / checksum_path(LAST)
    checksum.write_text(json.dumps(right | wrong))
    log = log_of(table)
    with pytest.raises(InvalidTableError, match=message) as raised:
        write_checkpoint(spark, str(table), policy=policy)
    assert raised.value.path == checksum_path(LAST)
    assert log_of(table) == log
    checksum.write_text(json.dumps(right))
    assert write_checkpoint(spark, str(table), policy=policy).written


def test_sidecars_stay_where_the_top_level_may_be_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(commits(HISTORY), tmp_path)

    def publishes_and_fails(*arguments: Any, **options: Any) -> Any:
        publish_top_level(*arguments, **options)
        raise StorageError("the answer was lost")

    monkeypatch.setattr(checkpointing, "publish_top_level", publishes_and_fails)
    with pytest.raises(StorageError, match="the answer was lost"):
        write_checkpoint(spark, str(table), policy="v2")
    (path,) = (name for name in log_of(table) if ".checkpoint." in name and "/" not in name)
    assert state_by_checkpoint(table, path) == STATES[LAST].visible()


KILLED = """
import os, signal, sys
from pyspark.sql import SparkSession
from airflow_delta.spark.checkpoint import execution as checkpointing

checkpointing.publish_top_level = lambda *a, **o: os.kill(os.getpid(), signal.SIGKILL)
settings = eval(sys.argv[2])
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
checkpointing.write_checkpoint(spark, sys.argv[1], policy="v2")
"""


@pytest.mark.deep
def test_a_job_that_is_killed_leaves_nothing_that_anybody_sees(tmp_path: Path) -> None:
    table = table_of(commits(HISTORY), tmp_path)
    log = log_of(table)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(table), repr(SETTINGS | INTERPRETED)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = sidecars_of(table)
    assert left, "it was killed too early to tell anything"
    assert {name: text for name, text in log_of(table).items() if name not in left} == log
    assert state_of(DeltaTable(str(table)).snapshot()) == STATES[LAST].visible()
    result = DeltaTable(str(table)).checkpoint()
    assert state_by_checkpoint(table, result.path) == STATES[LAST].visible()


def test_what_is_refused_is_refused_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    old = [[{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata(), add("a")]]
    table = table_of(commits(old), tmp_path)
    log = log_of(table)
    with pytest.raises(UnsupportedFeatureError, match="v2Checkpoint"):
        write_checkpoint(spark, str(table), policy="v2")
    with pytest.raises(VersionNotFoundError, match="version 3"):
        write_checkpoint(spark, str(table), 3)
    with pytest.raises(InvalidArgumentError, match="can't see the memory"):
        write_checkpoint(spark, "memory://bucket/table")
    result = write_checkpoint(spark, str(table), if_needed=True)
    assert (result.written, result.plan.needed) == (False, False)
    assert "1 commits have been made" in result.plan.reason
    assert log_of(table) == log


def test_leftovers_are_those_of_the_run_and_no_other() -> None:
    storage = MemoryStorage("memory://leftovers/table")
    names = ["a.1.0.parquet", "a.2.0.parquet", "a.2.1.parquet", "aa.1.0.parquet", "b.1.0.parquet"]
    for name in names:
        storage.create(f"_delta_log/_sidecars/{name}", b"")
    SidecarRun(storage, "a").delete(kept=["a.2.0.parquet"])
    left = [file.name for file in storage.list("_delta_log/_sidecars")]
    assert left == ["a.2.0.parquet", "aa.1.0.parquet", "b.1.0.parquet"]


@pytest.mark.parametrize("partitions", [ByHash(7), ByRange(()), ByRange(("k3", "k5", "x"))])
def test_a_key_belongs_to_one_partition(partitions: ByHash | ByRange) -> None:
    keys = [f"k{n}" for n in range(10)] + ["", "ü", "k3\x00u1", "zz"]
    numbers = list(partitions.numbers(keys))
    assert list(partitions.numbers(keys[::-1])) == numbers[::-1]
    assert set(numbers) <= set(range(partitions.count))


def test_ranges_follow_each_other_and_begin_with_their_bound() -> None:
    assert list(ByRange(("b", "d")).numbers(["a", "b", "c", "d", "e"])) == [0, 1, 1, 2, 2]


def test_the_options_of_the_storage_are_not_shown() -> None:
    assert "hidden" not in repr(StorageAddress("s3://lake/t", {"aws_secret_access_key": "hidden"}))
