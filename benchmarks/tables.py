"""The tables that the benchmarks read: logs without data files, made once and kept.

No benchmark reads data, so the logs name files that don't exist. Every log is deterministic.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

COMMITS = 100
"""In how many commits most logs have their actions."""

CHECKPOINT_INTERVAL = 100
"""After how many commits writers make a checkpoint of `empty`."""

START_MS = 1_700_000_000_000
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in [("day", "string"), ("id", "long"), ("amount", "double")]
    ],
}


def commit_ms(version: int) -> int:
    """When a version was committed, in epoch milliseconds."""
    return START_MS + version * 1000


def json_log(work: Path, actions: int, commits: int) -> Path:
    """A log of JSON commits: ``actions`` adds in ``commits`` commits, a tenth of them removed."""
    return made(work / f"json-{actions}-{commits}", lambda root: _write(root, actions, commits))


def long_log(work: Path, commits: int) -> Path:
    """A log of many commits of one add each, none cleaned up, with ten checkpoints along the way."""
    return made(work / f"long-{commits}", lambda root: _write_long(root, commits))


def own_checkpoint(work: Path, actions: int, commits: int) -> Path:
    """The same table with a checkpoint that the engine wrote, and no commit older than it."""
    return made(
        work / f"own-{actions}-{commits}",
        lambda root: _checkpointed(root, json_log(work, actions, commits), peer=False),
    )


def foreign_checkpoint(work: Path, actions: int, commits: int) -> Path:
    """The same table with a checkpoint that `deltalake` wrote."""
    return made(
        work / f"foreign-{actions}-{commits}",
        lambda root: _checkpointed(root, json_log(work, actions, commits), peer=True),
    )


def parsed_checkpoint(work: Path, actions: int, commits: int) -> Path:
    """The same table with a checkpoint of ours that has the statistics as structs."""
    return made(
        work / f"parsed-{actions}-{commits}", lambda root: _write_parsed(root, actions, commits)
    )


def appended(base: Path) -> Path:
    """A table with ten more commits of 1,000 adds each after its checkpoint."""
    return made(base.with_name(f"{base.name}-appended"), lambda root: _follow(root, base, 0))


def thinned(base: Path) -> Path:
    """The same ten commits, which also remove one of a hundred files of the table, at random."""
    return made(base.with_name(f"{base.name}-thinned"), lambda root: _follow(root, base, 100))


def v2_log(work: Path, actions: int, commits: int) -> Path:
    """The same JSON commits, of a table that has V2 checkpoints."""
    return made(
        work / f"v2json-{actions}-{commits}",
        lambda root: _write(root, actions, commits, _V2_PROPERTIES, protocol=_V2_PROTOCOL),
    )


def with_v2(work: Path, actions: int, commits: int, policy: str) -> Path:
    """The table of `v2_log` with a checkpoint of ours by a policy, and no commit older than it."""
    return made(
        work / f"with_{policy}-{actions}-{commits}",
        lambda root: _write_with_v2(root, v2_log(work, actions, commits), policy),
    )


def empty(work: Path) -> Path:
    """A table without files: version 0 alone."""
    properties = {"delta.checkpointInterval": str(CHECKPOINT_INTERVAL), **_NO_CLEANUP}
    return made(work / "empty", lambda root: _write(root, 0, 1, properties))


def made(root: Path, make: Callable[[Path], object]) -> Path:
    """Make a table once; it gets its name when it is complete."""
    if not root.is_dir():
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        (unfinished / "_delta_log").mkdir(parents=True)
        make(unfinished)
        unfinished.rename(root)
    return root


def _write_long(root: Path, commits: int) -> None:
    from airflow_delta.engine import DeltaTable

    _write(root, commits, commits)
    for version in range(commits // 10 - 1, commits, commits // 10):
        DeltaTable(str(root)).checkpoint(version)


def _write_parsed(root: Path, actions: int, commits: int) -> None:
    from airflow_delta.engine import DeltaTable

    _write(root, actions, commits, {"delta.checkpoint.writeStatsAsStruct": "true"})
    DeltaTable(str(root)).checkpoint()
    _remove_commits(root)


def _write_with_v2(root: Path, source: Path, policy: str) -> None:
    from airflow_delta.engine import DeltaTable

    shutil.copytree(source, root, dirs_exist_ok=True)
    DeltaTable(str(root)).checkpoint(policy=policy)  # type: ignore[arg-type]
    _remove_commits(root)


def _follow(root: Path, base: Path, removed_of: int) -> None:
    shutil.copytree(base, root, dirs_exist_ok=True)
    (newest,) = (root / "_delta_log").glob("*[0-9].json")
    first, commits, adds = int(newest.stem) + 1, 10, 1000
    # The name of the base has the number of adds in its log. A tenth of them was removed.
    last_key = int(base.name.split("-")[1])
    live = (key for key in range(last_key) if key % 10)
    removed = random.Random(1).sample(list(live), last_key // removed_of) if removed_of else []
    for number in range(commits):
        now = commit_ms(first + number)
        with (root / "_delta_log" / f"{first + number:020}.json").open("w") as file:
            file.write(_commit_info(now))
            for key in range(last_key + number * adds, last_key + (number + 1) * adds):
                file.write(_add(key, now))
            for key in removed[number::commits]:
                file.write(_remove(key, now))


_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_V2_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint"],
}
# Peers clean up with each checkpoint. The commits are years old: they would be deleted.
_NO_CLEANUP = {"delta.enableExpiredLogCleanup": "false"}
_V2_PROPERTIES = {"delta.checkpointPolicy": "v2", **_NO_CLEANUP}


def _write(
    root: Path,
    actions: int,
    commits: int,
    configuration: Mapping[str, str] | None = None,
    *,
    protocol: Mapping[str, object] = _PROTOCOL,
) -> None:
    per_commit = actions // commits
    for version in range(commits):
        path = root / "_delta_log" / f"{version:020}.json"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(_lines(version, per_commit, configuration or {}, protocol))
        stamp = commit_ms(version) * 1_000_000
        os.utime(path, ns=(stamp, stamp))


def _commit_info(now: int) -> str:
    info = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    return json.dumps({"commitInfo": info}) + "\n"


def _lines(
    version: int, adds: int, configuration: Mapping[str, str], protocol: Mapping[str, object]
) -> Iterator[str]:
    now = commit_ms(version)
    yield _commit_info(now)
    if version == 0:
        yield json.dumps({"protocol": protocol}) + "\n"
        metadata = {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": ["day"],
            "configuration": configuration,
            "createdTime": now,
        }
        yield json.dumps({"metaData": metadata}) + "\n"
    for number in range(adds):
        key = version * adds + number
        yield _add(key, now)
        if version and key % 10 == 0:
            yield _remove(key - adds, now)


def data_path(key: int) -> str:
    """The data file of an add, below the table."""
    day = key % 365
    return f"day={day:03}/part-{key:08}-{key * 2654435761 % 2**64:016x}-c000.snappy.parquet"


def _add(key: int, now: int) -> str:
    low = key * 1000
    stats = (
        f'{{\\"numRecords\\":1000,\\"minValues\\":{{\\"id\\":{low},\\"amount\\":{low}.5}},'
        f'\\"maxValues\\":{{\\"id\\":{low + 999},\\"amount\\":{low + 999}.5}},'
        f'\\"nullCount\\":{{\\"id\\":0,\\"amount\\":{key % 7}}}}}'
    )
    return (
        f'{{"add":{{"path":"{data_path(key)}","partitionValues":{{"day":"{key % 365:03}"}},'
        f'"size":{10_000 + key % 1000},"modificationTime":{now},"dataChange":true,'
        f'"stats":"{stats}"}}}}\n'
    )


def _remove(key: int, now: int) -> str:
    return (
        f'{{"remove":{{"path":"{data_path(key)}","deletionTimestamp":{now},"dataChange":true,'
        f'"extendedFileMetadata":true,"partitionValues":{{"day":"{key % 365:03}"}},'
        f'"size":{10_000 + key % 1000}}}}}\n'
    )


def _checkpointed(root: Path, source: Path, *, peer: bool) -> None:
    log = root / "_delta_log"
    shutil.copytree(source / "_delta_log", log, dirs_exist_ok=True)
    if peer:
        import deltalake

        deltalake.DeltaTable(root).create_checkpoint()
    else:
        from airflow_delta.engine import DeltaTable

        DeltaTable(str(root)).checkpoint()
    _remove_commits(root)


def _remove_commits(root: Path) -> None:
    """Remove the commits that the checkpoint replaces: all but the newest."""
    for commit in sorted((root / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
