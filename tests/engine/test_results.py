"""What public methods return can be logged: ``to_dict()`` of each is plain JSON.

The list isn't kept by hand: it is what the methods and properties of the engine's classes say that they
return, and what a result has in it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import (
    LONG,
    AddFile,
    DeltaTable,
    OptimisticTransaction,
    Snapshot,
    StructField,
    StructType,
)
from airflow_delta.engine.changes.plan import ChangePlan
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.model.plain import plain
from airflow_delta.engine.snapshot.verify import Difference, VerifyResult
from airflow_delta.engine.transaction.alter.table import TableAlteration
from tests.log_builder import add, remove, write_table

ENTRANCES = (*DeltaTable.__mro__[:-1], Snapshot, OptimisticTransaction, TableAlteration)
HANDLES = {
    *(cls.__name__ for cls in ENTRANCES),
    # Parts of the engine, for its own modules.
    *("Storage", "FileAccess", "LogSegment", "LogState", "Timeline", "SidecarPlan", "CommitOwners"),
    # It gives rows.
    "Scan",
}
"""What isn't a result: it has methods, and is returned to be asked."""


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The functions behind the public methods and properties of a class."""
    for name, found in vars(cls).items():
        if name.startswith("_"):
            continue
        for inside in ("fget", "func", "__func__", "_compute", "__wrapped__"):
            found = getattr(found, inside, found)
        if inspect.isfunction(found):
            yield name, found


def imported(module: ModuleType) -> dict[str, str]:
    """The names that a module imports, those for type checkers too, with where they come from."""
    tree = ast.parse(inspect.getsource(module))
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def returned(function: Any) -> Iterator[type]:
    """The classes of the engine that an annotation of what a function returns names."""
    text = function.__annotations__["return"]
    module = inspect.getmodule(function)
    assert module is not None
    for name in set(re.findall(r"[A-Za-z_][\w.]*", text)):
        found = getattr(module, name, None)
        if found is None and name in imported(module):
            home, original = imported(module)[name].split(":")
            found = getattr(__import__(home, fromlist=[original]), original)
        if isinstance(found, type) and found.__module__.startswith("airflow_delta.engine"):
            yield found


def result_classes() -> set[type]:
    """The classes of all results, and of plans and results inside them."""
    found: set[type] = set()
    due = [
        cls
        for entrance in ENTRANCES
        for _, function in members(entrance)
        for cls in returned(function)
    ]
    while due:
        cls = due.pop()
        if cls in found or cls.__name__ in HANDLES or issubclass(cls, Exception):
            continue
        found.add(cls)
        inside = [hint for _, function in members(cls) for hint in returned(function)]
        inside += [
            field
            for text in getattr(cls, "__annotations__", {}).values()
            for field in returned(_as_function(text, cls))
        ]
        due += [each for each in inside if each.__name__.endswith(("Plan", "Result"))]
    return found


def _as_function(annotation: str, cls: type) -> Any:
    """Something that `returned` takes, for the annotation of a field."""

    class Annotated:
        __module__ = cls.__module__
        __annotations__ = {"return": annotation}

    return Annotated


def changed(root: Path, num_files: int) -> DeltaTable:
    """A table with a change data feed, and a version with files."""
    schema = StructType((StructField("id", LONG),))
    on = {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(root, schema, properties=on)
    transaction = table.transaction("WRITE")
    stats = '{"numRecords":1}'
    transaction.add_files(
        AddFile(f"f{number}", {}, 3, 1, data_change=True, stats=stats)
        for number in range(num_files)
    )
    transaction.commit()
    return table


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Results of what can be done with tables, by the names of their classes."""
    root = tmp_path_factory.mktemp("results")
    found: list[Any] = []

    def keep(*results: Any) -> None:
        for result in results:
            found.append(result)
            if getattr(result, "plan", None) is not None:
                found.append(result.plan)

    write_table(
        root / "t", [add("a", size=10)], [remove("a"), add("b", size=4)], [add("c", size=5)]
    )
    for name in "bcd":
        (root / "t" / name).write_bytes(b"123")
    table = DeltaTable(root / "t")
    keep(
        table.checkpoint(dry_run=True),
        table.checkpoint(1),
        table.compact_log(0, 2, dry_run=True),
        table.compact_log(0, 2),
        table.cleanup_metadata(),
        table.vacuum(dry_run=True),
        table.vacuum(),
        table.check(),
        *table.check().findings,
        table.check_version(table.snapshot()),
        table.commit_status(),
        *table.history(),
    )
    other = changed(root / "changed", 2)
    keep(other.changes(0), other.snapshot().row_tracking, *other.snapshot().domains.values())
    keep(other.enable_row_tracking())
    keep(other.transaction("READ").read_domain("delta.rowTracking"))
    keep(table.restore(1, dry_run=True, ignore_missing_files=True))
    keep(table.restore(1, once=("app", 1)), table.restore(1, once=("app", 1)))
    keep(table.alter.set_properties({"team": "sales"}))
    keep(table.alter.add_feature("v2Checkpoint"), table.alter.add_feature("domainMetadata"))
    transaction = table.transaction("WRITE")
    transaction.set_transaction("app", 7)
    transaction.set_domain("d", "{}")
    keep(transaction.commit())
    snapshot = table.snapshot()
    keep(
        snapshot.protocol,
        snapshot.metadata,
        snapshot.schema,
        snapshot.properties,
        snapshot.row_tracking,
        *snapshot.features,
        *snapshot.domains.values(),
        *snapshot.transactions.values(),
        snapshot.verify(),
    )
    for dry_run in (True, False):
        keep(table.drop_feature("v2Checkpoint", truncate_history=True, dry_run=dry_run))
    owned = DeltaTable(root / "t", commit_owners={"memory": StoreBackedOwner(MemoryCommitStore())})
    keep(owned.convert_to_managed("memory", {"backfill": "on-request"}), owned.commit_status())
    keep(owned.backfill(dry_run=True), owned.backfill(), owned.convert_to_file_system())
    keep(DeltaTable(root / "t").repair_statistics(), DeltaTable(root / "t").maintenance_status())
    optimized = DeltaTable(root / "t").optimize(dry_run=True)
    keep(optimized, optimized.plan, DeltaTable(root / "t").health())
    (root / "converted").mkdir()
    pq.write_table(pa.table({"id": [1]}), root / "converted" / "a.parquet")
    for dry_run in (True, False, False):
        keep(DeltaTable.convert(root / "converted", dry_run=dry_run))
    keep(VerifyResult(1, ("metadata",), (Difference("metadata", snapshot.metadata, None),)))
    by_class: dict[str, list[Any]] = {}
    for result in found:
        if result is not None:
            by_class.setdefault(type(result).__name__, []).append(result)
    return by_class


@pytest.mark.parametrize("cls", sorted(result_classes(), key=lambda cls: cls.__name__))
def test_a_result_becomes_plain_json(cls: type, samples: dict[str, list[Any]]) -> None:
    assert hasattr(cls, "to_dict"), (
        f"{cls.__name__} is returned by a public method: give it to_dict()"
    )
    assert samples.get(cls.__name__), f"no sample of {cls.__name__}: add one above"
    for result in samples[cls.__name__]:
        facts = result.to_dict()
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert facts


TIME = re.compile(r"(^|_)(time|timestamp|cutoff|at|ended|created)$")
WIRE = {"Metadata", "Txn"}
"""Actions, whose fields are those of the log."""


def test_times_of_results_are_aware_datetimes(samples: dict[str, list[Any]]) -> None:
    """The number of the log is there as well, by a name that says so: ``…_ms``."""
    seen: set[str] = set()
    results = [each for name, found in samples.items() if name not in WIRE for each in found]
    assert results
    for result in results:
        for name in dir(type(result)):
            value = None if name.startswith("_") else getattr(result, name, None)
            where = f"{type(result).__name__}.{name}"
            if isinstance(value, datetime):
                assert value.utcoffset() == timedelta(0), where
                seen.add(where)
            elif TIME.search(name):
                assert value is None or not isinstance(value, int), f"{where}: {value!r}"
    assert seen >= {"CommitInfo.timestamp", "CommitResult.timestamp"}, seen


def test_the_classes_are_found() -> None:
    """The walk is worth nothing if it finds nothing: some that are known, by each way to be found."""
    names = {cls.__name__ for cls in result_classes()}
    assert names >= {
        *("CommitResult", "CheckpointResult", "VacuumResult", "RestoreResult", "DropFeatureResult"),
        *("LogCompactionResult", "MetadataCleanupResult", "BackfillResult", "ConversionResult"),
        *("CheckpointPlan", "VacuumPlan", "RestorePlan", "DropFeaturePlan", "LogCompactionPlan"),
        *("MetadataCleanupPlan", "BackfillPlan", "ChangePlan", "VerifyResult", "CheckReport"),
        *("CommitInfo", "CommitStatus", "Protocol", "Metadata", "StructType", "FeatureStatus"),
        *("TableProperties", "RowTracking", "PastFiles", "DomainMetadata", "Txn"),
    }


def test_a_plan_of_many_files_stays_small(tmp_path: Path) -> None:
    plan = changed(tmp_path, 2_000).changes(0)
    assert isinstance(plan, ChangePlan)
    assert len(json.dumps(plan.to_dict())) < 500
    assert plan.to_dict() == {
        "start": 0,
        "end": 1,
        "files": 2_000,
        "bytes": 6_000,
        "by_kind": {"insert": 2_000, "delete": 0, "change data": 0},
    }


def test_times_become_iso_8601_with_a_z() -> None:
    assert plain(datetime(2026, 1, 31, 12, tzinfo=timezone.utc)) == "2026-01-31T12:00:00Z"


def test_numbers_that_json_lacks_become_texts() -> None:
    odd = {"nan": float("nan"), "far": [float("-inf")], 1: b"\x01", "set": {"b", "a"}}
    assert plain(odd) == {"nan": "nan", "far": ["-inf"], "1": "01", "set": ["a", "b"]}
