"""Fuzz: a damaged log gives a right answer or a typed error, and nothing else.

Valid logs of every form are damaged at random, with a fixed seed, and read. `corruptions.possible`
says which answers are right. ``DELTA_CORRUPTIONS`` sets how many cases are tried.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from airflow_delta.engine.errors import DeltaError, DeltaWarning
from tests.deep import deep_but_for
from tests.laws.corruptions import Log, damage, latest, possible, untold
from tests.log_builder import SCHEMA, metadata
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    checksum,
    commit_file,
    commits,
    compaction,
    hint,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

CASES = int(os.environ.get("DELTA_CORRUPTIONS", "2000"))
BLOCKS = 4
LAST = 7


def history(*features: str) -> list[list[Action]]:
    """Eight commits with every kind of action."""
    names = ["deletionVectors", *features]
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": names,
            "writerFeatures": [*names, "domainMetadata"],
        }
    }
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    wider = {"name": "c", "type": "long", "nullable": True, "metadata": {}}
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"], wider]}
    return [
        [_info(0), protocol, metadata(partition_columns=["part"]), *(_add(n) for n in "abcdefghi")],
        [_info(1), _add("j", tags={"k": "v"}), _txn("app", 1), _domain("d", '{"x":[1,"é"]}')],
        [_info(2), _remove("a"), _remove("b"), _add("k"), _txn("app", 2)],
        [_info(3), _remove("c"), _add("c", deletionVector=vector), _domain("e", "{}")],
        [_info(4), metadata(partition_columns=["part"], schema=schema), _txn("b", 7)],
        [_info(5), _add("a", size=99), _domain("d", "", removed=True), {"novelty": {"a": [1]}}],
        [_info(6), _remove("c", deletionVector=vector), _remove("d", deletionTimestamp=5)],
        [_info(7), _add("l%20m", stats='{"numRecords":4}'), _txn("app", 3)],
    ]


def _info(version: int) -> Action:
    return {"commitInfo": {"timestamp": version, "operation": "WRITE", "txnId": f"t{version}"}}


def _add(name: str, **fields: object) -> Action:
    base = {
        "path": f"part=x/{name}.parquet",
        "partitionValues": {"part": "x"},
        "size": 123,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}',
    }
    return {"add": {**base, **fields}}


def _remove(name: str, **fields: object) -> Action:
    base = {
        "path": f"part=x/{name}.parquet",
        "deletionTimestamp": FAR_FUTURE_MS,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"part": "x"},
        "size": 123,
    }
    return {"remove": {**base, **fields}}


def _txn(app: str, version: int) -> Action:
    return {"txn": {"appId": app, "version": version, "lastUpdated": 1_700_000_000_000}}


def _domain(name: str, text: str, *, removed: bool = False) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


@cache
def logs() -> tuple[Log, ...]:
    """Logs of every form, of the same history."""
    plain, with_v2 = history(), history("v2Checkpoint")
    told, told_v2 = states(plain), states(with_v2)
    with MemoryTable(commits(plain)) as table:
        for version in (3, 6):
            table.delta().checkpoint(version=version)
        ours = table.files()
    sums = {
        p: c for version in range(LAST + 1) for p, c in checksum(told[version], version).items()
    }
    v2_json = {
        p: c
        for v in (2, 6)
        for p, c in v2_checkpoint(told_v2[v], v, form="json", sidecars=2).items()
    }
    v2_parquet = {
        p: c
        for v in (2, 6)
        for p, c in v2_checkpoint(told_v2[v], v, form="parquet", sidecars=v // 3).items()
    }
    parts = multipart_checkpoint(told[5], 5, parts=3)
    return (
        Log("commits", commits(plain), told),
        Log("commits and checkpoints", {**ours, **sums}, told),
        Log("checkpoints", since(ours, 3), told),
        Log("commits and v2 in JSON", {**commits(with_v2), **v2_json, **hint(6)}, told_v2),
        Log("v2 in JSON", since({**commits(with_v2), **v2_json}, 2), told_v2),
        Log("v2 in Parquet", since({**commits(with_v2), **v2_parquet, **hint(6)}, 2), told_v2),
        Log("parts", since({**commits(plain), **parts, **hint(5, parts=3)}, 5), told),
        Log("compactions", {**commits(plain), **compaction(told[4], 4, expired=True)}, told),
    )


def since(files: Files, first: int) -> Files:
    """The files of a log, older commits deleted."""
    old = {commit_file(version) for version in range(first)}
    return {path: content for path, content in files.items() if path not in old}


def read(files: Files, version: int | None) -> tuple[int, State] | DeltaError:
    """What the engine makes of a log; any other error than its own goes through."""
    with MemoryTable(files) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        try:
            snapshot = table.delta().snapshot(version=version)
            return snapshot.version, state_of(snapshot)
        except DeltaError as error:
            return error


def look_around(files: Files) -> None:
    """The other questions: only the type of their errors matters here."""
    with MemoryTable(files) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        delta = table.delta()
        for ask in (
            delta.latest_version,
            delta.history,
            lambda: delta.version_at(1),
            lambda: delta.snapshot().schema,
            lambda: delta.snapshot().num_rows,
            lambda: delta.version_of_transaction("app", 2),
        ):
            with suppress(DeltaError):
                ask()


def cases(log: Log) -> Iterator[tuple[Files, str]]:
    rng = random.Random(f"{log.name} 1")
    for number in range(CASES // len(logs())):
        files, what = damage(log.files, rng)
        yield files, f"case {number} of {log.name}: {what}"


@pytest.mark.parametrize("log", logs(), ids=lambda log: log.name)
def test_a_whole_log_is_read(log: Log) -> None:
    """The cases below start from logs that are right, and the rule of right answers knows it."""
    assert read(log.files, None) == (LAST, log.states[LAST].visible())
    for version in (6, LAST):
        assert list(possible(log, log.files, version))
        for state in possible(log, log.files, version):
            assert state == log.states[version].visible()


@pytest.mark.parametrize("block", deep_but_for(range(BLOCKS), 0))
@pytest.mark.parametrize("log", logs(), ids=lambda log: log.name)
def test_a_damaged_log_is_read_right_or_refused(log: Log, block: int) -> None:
    wrong: list[str] = []
    damaged = [*cases(log)]
    first, end = (len(damaged) * each // BLOCKS for each in (block, block + 1))
    for number, (files, what) in enumerate(damaged[first:end]):
        for version in (None, 4) if number % 4 == 1 else (None,):
            try:
                outcome = read(files, version)
                if number % 8 == 0:
                    look_around(files)
            except Exception as error:
                if isinstance(error, AssertionError) and untold(log, files):
                    continue
                wrong.append(f"{what}: {type(error).__name__} {error}")
                continue
            if isinstance(outcome, DeltaError) or untold(log, files):
                continue
            found, state = outcome
            if found != (latest(files) if version is None else version):
                wrong.append(f"{what}: version {found}")
            elif state not in list(possible(log, files, found)):
                wrong.append(f"{what}: a state of version {found} that nothing says")
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong])
