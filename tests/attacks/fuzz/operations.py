"""Every public operation, and what must be true after those that write."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.cli.main import main as cli
from airflow_delta.engine import AddCdcFile, AddFile, DeltaTable, RemoveFile, Snapshot
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.deletion_vectors.roaring import to_positions
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.model.schema import DOUBLE, LONG, StructField
from tests.attacks.fuzz.case import Case, file_key
from tests.attacks.fuzz.files import OLD_MS
from tests.attacks.fuzz.tables import MANAGED, OWNER, data_file

__all__ = ["OPERATIONS", "Bench", "Keys", "Operation", "newest_files"]

Keys = frozenset[tuple[str, "str | None"]]

APPENDED = "part=x/unknown.parquet"


@dataclass
class Bench:
    """A table laid out for operations.

    Attributes:
        root: its directory.
        case: what it was made from.
        before: version and live files before an operation that writes; None where they can't be read.
        printed: what the command line has printed.
        options: of the storage.
        owners: the commit owners that there are.
    """

    root: str
    case: Case
    before: tuple[int, Keys] | None = None
    printed: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    owners: dict[str, StoreBackedOwner] = field(default_factory=dict)

    def __post_init__(self) -> None:
        commit_store = MemoryCommitStore()
        for entry in self.case.owner_entries:
            commit_store._entries[entry.table_id] = replace(
                entry, location=os.path.realpath(self.root)
            )
        self.owners = {OWNER: StoreBackedOwner(commit_store)}

    def table(self) -> DeltaTable:
        """The table, afresh."""
        return DeltaTable(self.root, self.options, commit_owners=self.owners)


Expect = Callable[[Bench, Any], "Keys | None"]


@dataclass(frozen=True)
class Operation:
    """Something that users ask of a table.

    Attributes:
        name: for reports.
        run: does it; gives an answer, or raises.
        writes: whether it may change the table; it then gets a copy of its own.
        expect: the live files afterwards, from those before; None where that isn't known.
        deletes: which files may be gone afterwards, by the beginnings of their paths.
    """

    name: str
    run: Callable[[Bench], Any]
    writes: bool = False
    expect: Expect | None = None
    deletes: Callable[[str], bool] = lambda _path: False


OPERATIONS: list[Operation] = []


def _read(name: str) -> Callable[[Callable[[Bench], Any]], Callable[[Bench], Any]]:
    def enter(run: Callable[[Bench], Any]) -> Callable[[Bench], Any]:
        OPERATIONS.append(Operation(name, run))
        return run

    return enter


def newest_files(table: DeltaTable) -> tuple[int, Keys]:
    """Version and live files."""
    return keys_of(table.snapshot())


def keys_of(snapshot: Snapshot) -> tuple[int, Keys]:
    """Version and live files of a snapshot; one that is there twice has another key the second time."""
    rows = snapshot.files(columns=["path", "deletionVector"]).to_pylist()
    keys = list(map(file_key, rows))
    twice = {(path, f"{vector} twice") for (path, vector), n in Counter(keys).items() if n > 1}
    return snapshot.version, frozenset([*keys, *twice])


@_read("exists")
def _exists(bench: Bench) -> Any:
    return bench.table().exists()


@_read("latest_version")
def _latest(bench: Bench) -> Any:
    return bench.table().latest_version()


@_read("files")
def _files(bench: Bench) -> Any:
    return newest_files(bench.table())


@_read("snapshot")
def _snapshot(bench: Bench) -> Any:
    snapshot = bench.table().snapshot()
    asked = (snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.properties)
    return repr((*asked, snapshot.features, snapshot.row_tracking, snapshot.arrow_schema))[:100]


@_read("all columns")
def _all_columns(bench: Bench) -> Any:
    return bench.table().snapshot().files().num_rows


@_read("totals")
def _totals(bench: Bench) -> Any:
    snapshot = bench.table().snapshot()
    return snapshot.num_files, snapshot.size_in_bytes, snapshot.num_rows


@_read("predicates")
def _predicates(bench: Bench) -> Any:
    snapshot = bench.table().snapshot()
    name = _column(bench)
    found = [snapshot.files(columns=["path"], predicate=pc.field(name) > 5).num_rows]
    if bench.case.form != "simple":
        either = (
            (pc.field("part") == "x") | (pc.field("part") == "no\0ne") | pc.field(name).is_null()
        )
        found.append(snapshot.files(predicate=either).num_rows)
    return found


@_read("tombstones")
def _tombstones(bench: Bench) -> Any:
    snapshot = bench.table().snapshot()
    return snapshot.tombstones().num_rows, snapshot.tombstones(include_expired=True).num_rows


@_read("file_uris")
def _file_uris(bench: Bench) -> Any:
    return len(bench.table().snapshot().file_uris())


@_read("transactions and domains")
def _transactions(bench: Bench) -> Any:
    snapshot = bench.table().snapshot()
    return len(dict(snapshot.transactions)), len(dict(snapshot.domains))


@_read("timestamp")
def _timestamp(bench: Bench) -> Any:
    return bench.table().snapshot().timestamp


@_read("old snapshot")
def _old(bench: Bench) -> Any:
    return keys_of(bench.table().snapshot(version=3))


@_read("snapshot at a time")
def _at_a_time(bench: Bench) -> Any:
    return bench.table().snapshot(timestamp=OLD_MS + 5_500).version


@_read("version_at")
def _version_at(bench: Bench) -> Any:
    return bench.table().version_at(OLD_MS + 2_500)


@_read("history")
def _history(bench: Bench) -> Any:
    return len(bench.table().history()), len(bench.table().history(limit=2))


@_read("changes")
def _changes(bench: Bench) -> Any:
    plan = bench.table().changes(1)
    return plan.files.num_rows, plan.schema


@_read("recent changes")
def _recent_changes(bench: Bench) -> Any:
    return bench.table().changes(6, 6).files.num_rows


@_read("verify")
def _verify(bench: Bench) -> Any:
    return bench.table().snapshot().verify()


@_read("deletion vectors")
def _vectors(bench: Bench) -> Any:
    table = bench.table()
    files = table.snapshot().files(columns=["deletionVector", "stats"])
    found = read_deletion_vector_column(
        files["deletionVector"],
        table.storage,
        table=bench.root,
        open_uri=table.file_access.locate,
        num_rows=num_records(files["stats"]),
    )
    # As the rows of a file are found that are there no more.
    return [len(to_positions(vector)) for vector in found.values()]


@_read("data files")
def _data_files(bench: Bench) -> Any:
    """What a data plane does: open what the log names, where the table may read."""
    table = bench.table()
    access, found = table.file_access, Counter[str]()
    for uri in table.snapshot().file_uris():
        try:
            storage, path = access.locate(uri)
            with storage.open(path) as file:
                found[str(file.read(4))] += 1
        except DeltaError as error:
            found[type(error).__name__] += 1
    return found


@_read("check version")
def _check_version(bench: Bench) -> Any:
    table = bench.table()
    return table.check_version(table.snapshot(version=5))


@_read("check quick")
def _check_quick(bench: Bench) -> Any:
    return _codes(bench, "quick")


@_read("check log")
def _check_log(bench: Bench) -> Any:
    return _codes(bench, "log")


@_read("check files")
def _check_files(bench: Bench) -> Any:
    return _codes(bench, "files")


def _codes(bench: Bench, depth: Any) -> list[str]:
    # What a finding says is escaped where it is shown: by the command line and in logs.
    return sorted({finding.code for finding in bench.table().check(depth=depth).findings})


@_read("commit status")
def _status(bench: Bench) -> Any:
    return bench.table().commit_status()


@_read("version of transaction")
def _version_of_transaction(bench: Bench) -> Any:
    table = bench.table()
    return table.version_of_transaction("app", 1), table.version_of_transaction("nobody", 1)


@_read("read in transaction")
def _transaction(bench: Bench) -> Any:
    transaction = bench.table().transaction("WRITE")
    transaction.transaction_version("app")
    transaction.read_domain("d")
    return transaction.read_files().num_rows


def _command(*words: str) -> Callable[[Bench], Any]:
    def run(bench: Bench) -> Any:
        # Standard output refuses what UTF-8 doesn't have, as that of a process does.
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
        with redirect_stdout(out), redirect_stderr(err):
            status = cli([words[0], bench.root, *words[1:]])
        for stream in (out, err):
            stream.flush()
            bench.printed += stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
        return status

    return run


_DRY_VACUUM = ("vacuum", "--dry-run", "--ignore-retention", "--retention-hours", "0")
for _words in (
    ("describe",), ("describe", "--json"), ("history",), ("history", "--json"), ("doctor",), _DRY_VACUUM,
    ("cleanup", "--dry-run"), ("restore", "--version", "4", "--dry-run"),
):  # fmt: skip
    OPERATIONS.append(Operation("cli " + " ".join(_words), _command(*_words)))


_HOUR = timedelta(hours=1)
_PLANS: dict[str, Callable[[DeltaTable], Any]] = {
    "checkpoint plan": lambda t: t.checkpoint(dry_run=True),
    "compaction plan": lambda t: t.compact_log(dry_run=True),
    "cleanup plan": lambda t: t.cleanup_metadata(older_than=_HOUR, force=True, dry_run=True),
    "vacuum plan": lambda t: t.vacuum(retention_hours=0, enforce_retention=False, dry_run=True),
    "lite vacuum plan": lambda t: t.vacuum(
        retention_hours=0, enforce_retention=False, mode="lite", dry_run=True
    ),
    "restore plan": lambda t: t.restore(4, dry_run=True),
    "drop plan": lambda t: t.drop_feature("deletionVectors", dry_run=True),
    "backfill plan": lambda t: t.backfill(dry_run=True),
}
for _name, _plan in _PLANS.items():
    OPERATIONS.append(Operation(_name, lambda bench, plan=_plan: plan(bench.table())))


# What may change the table.


def _same(bench: Bench, _result: Any) -> Keys | None:
    return bench.before[1] if bench.before else None


def _in_log(path: str) -> bool:
    return path.startswith("_delta_log/")


def _not_in_log(path: str) -> bool:
    return not path.startswith("_delta_log")


def _checkpoints(path: str) -> bool:
    """A damaged checkpoint that readers would prefer goes when another one is written."""
    return path.startswith("_delta_log/") and ".checkpoint." in path


def _none(_path: str) -> bool:
    return False


def _write(
    name: str, run: Callable[[Bench], Any], *, expect: Expect | None = _same,
    deletes: Callable[[str], bool] = _none,
) -> None:  # fmt: skip
    OPERATIONS.append(Operation(name, run, True, expect, deletes))


def _inventory(bench: Bench) -> pa.Table:
    paths = ["part=x/a.parquet", "part=x/unknown.parquet", f"{bench.root}/part=x/b.parquet"]
    paths += [path.encode("utf-8", "replace").decode() for path in bench.case.inventory]
    rows = [{"path": p, "length": 1, "isDir": False, "modificationTime": OLD_MS} for p in paths]
    return pa.Table.from_pylist(rows)


def _values(bench: Bench) -> Mapping[str, str]:
    return {} if bench.case.form == "simple" else {"p-part": "x"}


def _append(bench: Bench) -> Any:
    transaction = bench.table().transaction("WRITE")
    transaction.read_files()
    transaction.add_file(
        AddFile(APPENDED, _values(bench), len(data_file()), OLD_MS, data_change=True)
    )
    return transaction.commit().version


def _appended(bench: Bench, _result: Any) -> Keys | None:
    return bench.before[1] | {(APPENDED, None)} if bench.before else None


def _remove_one(bench: Bench) -> Any:
    transaction = bench.table().transaction("DELETE")
    path = transaction.read_files(columns=["path", "deletionVector"]).to_pylist()
    plain = [row["path"] for row in path if row["deletionVector"] is None]
    if not plain:
        return None
    transaction.remove_file(RemoveFile(plain[0], data_change=True))
    transaction.commit()
    return plain[0]


def _without_it(bench: Bench, result: Any) -> Keys | None:
    if bench.before is None or result is None:
        return None
    if any(vector and vector.endswith(" twice") for _, vector in bench.before[1]):
        return None  # one of several spellings of a path, as the key has it
    return bench.before[1] - {file_key({"path": result})}


def _once(bench: Bench) -> Any:
    file = AddFile(APPENDED, _values(bench), len(data_file()), OLD_MS, data_change=True)
    for _ in range(2):
        result = bench.table().commit_once("fuzz", 1, "WRITE", lambda t: t.add_file(file))
    return result.version


def _change_feed(bench: Bench) -> Any:
    transaction = bench.table().transaction("UPDATE")
    transaction.add_cdc_file(AddCdcFile("_change_data/new.parquet", _values(bench), 1))
    transaction.set_transaction("fuzz", 5)
    return transaction.commit().version


def _restore(bench: Bench, *, by_force: bool) -> Any:
    table = bench.table()
    expected = keys_of(table.snapshot(version=4))
    table.restore(4, ignore_missing_files=by_force)
    return expected


def _restored(bench: Bench, result: Any) -> Keys | None:
    return frozenset(result[1]) if result else None


def _column(bench: Bench) -> str:
    return "c-id" if bench.case.form == "simple" else "id"


def _owner_commit(bench: Bench) -> Any:
    return bench.table().convert_to_managed(OWNER, {"backfill": "on-request"})


_write("checkpoint", lambda b: b.table().checkpoint(backfill_first=b.case.form == MANAGED),
       deletes=_checkpoints)  # fmt: skip
_write("old checkpoint", lambda b: b.table().checkpoint(3), deletes=_checkpoints)
_write("v2 checkpoint", lambda b: b.table().checkpoint(policy="v2"), deletes=_checkpoints)
_write("compact_log", lambda b: b.table().compact_log())
_write("compact a range", lambda b: b.table().compact_log(1, 6))
_write("cleanup", lambda b: b.table().cleanup_metadata(), deletes=_in_log)
_write("forced cleanup",
       lambda b: b.table().cleanup_metadata(older_than=_HOUR, force=True, write_checkpoint=True),
       deletes=_in_log)  # fmt: skip
_write(
    "vacuum",
    lambda b: b.table().vacuum(retention_hours=0, enforce_retention=False),
    deletes=_not_in_log,
)
_write("lite vacuum",
       lambda b: b.table().vacuum(retention_hours=0, enforce_retention=False, mode="lite"),
       deletes=_not_in_log)  # fmt: skip
_write("vacuum of an inventory",
       lambda b: b.table().vacuum(retention_hours=0, enforce_retention=False, inventory=_inventory(b)),
       deletes=_not_in_log)  # fmt: skip
_write("restore", lambda b: _restore(b, by_force=False), expect=_restored)
_write("forced restore", lambda b: _restore(b, by_force=True), expect=_restored)
_write("append", _append, expect=_appended)
_write("remove", _remove_one, expect=_without_it)
_write("commit once", _once, expect=_appended)
_write("change feed commit", _change_feed)
_write(
    "set properties", lambda b: b.table().alter.set_properties({"delta.checkpointInterval": "7"})
)
_write(
    "add a column",
    lambda b: b.table().alter.add_columns([StructField("fuzz", LONG, nullable=True)]),
)
_write("rename a column", lambda b: b.table().alter.rename_column(_column(b), "renamed"))
_write("drop a column", lambda b: b.table().alter.drop_columns([_column(b)]))
_write("change a type", lambda b: b.table().alter.change_type(_column(b), DOUBLE))
_write("add a constraint", lambda b: b.table().alter.add_constraint("fuzz", "1 > 0"))
_write(
    "drop deletion vectors", lambda b: b.table().drop_feature("deletionVectors"), deletes=_in_log
)
_write("drop v2 checkpoints",
       lambda b: b.table().drop_feature("v2Checkpoint", truncate_history=True),
           deletes=_in_log)  # fmt: skip
_write("drop append-only", lambda b: b.table().drop_feature("appendOnly"), deletes=_in_log)
_write("backfill", lambda b: b.table().backfill())
_write("convert to managed", _owner_commit)
_write("convert to file system", lambda b: b.table().convert_to_file_system())
