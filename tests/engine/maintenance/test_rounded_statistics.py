"""Bounds of decimals that were rounded: found by the footers of the files, and put right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.errors import CommitConflictError, ConcurrentAppendError
from airflow_delta.engine.maintenance.check.findings import CheckReport
from airflow_delta.engine.maintenance.rounded_statistics import find_rounded_statistics
from airflow_delta.engine.model.schema import LONG, DecimalType, StructField, StructType
from airflow_delta.engine.transaction.commit_loop import CommitLoop
from airflow_delta.engine.transaction.file_rows import add_actions

WIDE = DecimalType(38, 10)
SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("d", WIDE),
        StructField("s", StructType((StructField("e", WIDE),))),
    )
)
# Both are rounded to what lies between them.
LOW = Decimal("1234567890123456789012345678.9999999999")
HIGH = Decimal("1234567890123456789012345679.0000000001")


def rounded(value: Decimal) -> Decimal:
    """As releases before did, in Python's default context: to 28 digits."""
    return +value


def exactly(value: Decimal) -> Decimal:
    return value


def add(root: Path, name: str, values: list[Any], form: Any) -> None:
    """A data file of these decimals, and its add with bounds in some form."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.decimal128(38, 10)),
            ("s", pa.struct([("e", pa.decimal128(38, 10))])),
        ]
    )
    rows = [{"id": number, "d": v, "s": {"e": v}} for number, v in enumerate(values)]
    pq.write_table(pa.Table.from_pylist(rows, schema), root / name, row_group_size=2)
    present = [value for value in values if value is not None]
    nulls = len(values) - len(present)
    low, high = (f"{form(bound(present)):f}" for bound in (min, max))
    stats = (
        f'{{"numRecords":{len(values)},"minValues":{{"id":0,"d":{low},"s":{{"e":{low}}}}},'
        f'"maxValues":{{"id":{len(values)},"d":{high},"s":{{"e":{high}}}}},'
        f'"nullCount":{{"id":0,"d":{nulls},"s":{{"e":{nulls}}}}},"tightBounds":true}}'
    )
    transaction = DeltaTable(str(root)).transaction("WRITE")
    size = (root / name).stat().st_size
    transaction.add_file(AddFile(name, {}, size, 0, data_change=True, stats=stats))
    transaction.commit()


@pytest.fixture
def damaged(tmp_path: Path) -> DeltaTable:
    """A table in which the bounds of one file were rounded."""
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    add(tmp_path, "exact", [LOW, HIGH], exactly)
    add(tmp_path, "rounded", [None, None, HIGH, LOW], rounded)
    # Rounding changes nothing about these, though they have as many digits.
    add(tmp_path, "round", [Decimal(10) ** 27, Decimal("9e27")], rounded)
    add(tmp_path, "short", [Decimal("0.0000000001"), Decimal("-1.5")], rounded)
    return table


def findings(report: CheckReport) -> dict[str, str]:
    return {found.code: found.message for found in report.findings if found.severity != "info"}


def test_rounded_bounds_are_found_by_the_footers(damaged: DeltaTable) -> None:
    assert findings(damaged.check(depth="log")) == {}
    ((code, message),) = findings(damaged.check()).items()
    assert code == "statistics-rounded"
    assert "minima or maxima of d, s.e in 1 live file (rounded)" in message


def test_footers_of_writers_that_ordered_decimals_by_bytes_prove_nothing(
    damaged: DeltaTable, tmp_path: Path
) -> None:
    data = (tmp_path / "rounded").read_bytes()
    writers = b"parquet-cpp-arrow version ", b"parquet-mr version 1.8.2 ("
    assert data.count(writers[0]) == 1
    (tmp_path / "rounded").write_bytes(data.replace(*writers))
    assert findings(damaged.check()) == {}


@pytest.mark.parametrize("names", [("s.e", "s"), ("s", "s.e")])
def test_a_column_with_a_dot_is_not_taken_for_the_member_of_a_struct(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """Both have the path ``s.e`` in the schema of Parquet, and other values."""
    types = {"s.e": WIDE, "s": StructType((StructField("e", WIDE),))}
    table = DeltaTable.create(tmp_path, StructType(tuple(StructField(n, types[n]) for n in names)))
    kind = pa.decimal128(38, 10)
    columns = {
        "s.e": pa.array([LOW, HIGH], kind),
        "s": pa.array([{"e": LOW + 7}, {"e": HIGH + 7}], pa.struct([("e", kind)])),
    }
    pq.write_table(pa.table({name: columns[name] for name in names}), tmp_path / "a.parquet")

    def bounds(dotted: Decimal, member: Decimal) -> str:
        return f'{{"s.e":{dotted:f},"s":{{"e":{member:f}}}}}'

    wrong = bounds(rounded(LOW), rounded(LOW + 7)), bounds(rounded(HIGH), rounded(HIGH + 7))
    stats = f'{{"numRecords":2,"minValues":{wrong[0]},"maxValues":{wrong[1]}}}'
    size = (tmp_path / "a.parquet").stat().st_size
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("a.parquet", {}, size, 0, data_change=True, stats=stats))
    transaction.commit()
    table.repair_statistics()
    (repaired,) = table.snapshot().files()["stats"].to_pylist()
    found = json.loads(repaired, parse_float=Decimal)
    assert found["minValues"] == {"s.e": LOW, "s": {"e": LOW + 7}}
    assert found["maxValues"] == {"s.e": HIGH, "s": {"e": HIGH + 7}}


def test_only_files_that_may_be_concerned_are_opened(
    damaged: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    storage = type(damaged.storage)
    open_file = storage.open

    def watched(self: Any, path: str, **options: Any) -> Any:
        opened.append(path)
        return open_file(self, path, **options)

    monkeypatch.setattr(storage, "open", watched)
    damaged.check()
    assert {path for path in opened if not path.startswith("_delta_log")} == {"rounded", "round"}


def test_the_repair_gives_exact_bounds_and_changes_nothing_else(damaged: DeltaTable) -> None:
    before = {row["path"]: row for row in damaged.snapshot().files().to_pylist()}
    repair = damaged.repair_statistics()
    assert (repair.version, repair.num_files) == (damaged.latest_version(), 1)
    after = {row["path"]: row for row in damaged.snapshot().files().to_pylist()}
    stats = json.loads(after["rounded"].pop("stats"), parse_float=Decimal)
    assert stats == {
        "numRecords": 4,
        "minValues": {"id": 0, "d": LOW, "s": {"e": LOW}},
        "maxValues": {"id": 4, "d": HIGH, "s": {"e": HIGH}},
        "nullCount": {"id": 0, "d": 2, "s": {"e": 2}},
        "tightBounds": True,
    }
    assert after["rounded"].pop("dataChange") is False
    del before["rounded"]["stats"], before["rounded"]["dataChange"]
    assert after == before
    assert findings(damaged.check()) == {}
    again = damaged.repair_statistics()
    assert (again.version, again.num_files) == (repair.version, 0)


def meanwhile(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
    """Make a commit just before the next one."""
    run = CommitLoop.run

    def late(self: CommitLoop) -> Any:
        monkeypatch.setattr(CommitLoop, "run", run)
        commit()
        return run(self)

    monkeypatch.setattr(CommitLoop, "run", late)


def test_a_concurrently_removed_file_does_not_come_back(
    damaged: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove() -> None:
        transaction = DeltaTable(damaged.uri).transaction("DELETE")
        transaction.remove_file(RemoveFile("rounded", data_change=True))
        transaction.commit()

    meanwhile(monkeypatch, remove)
    with pytest.raises(CommitConflictError):
        damaged.repair_statistics()
    assert "rounded" not in damaged.snapshot().files(["path"])["path"].to_pylist()


def test_what_others_record_of_a_file_meanwhile_is_kept(
    damaged: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tag() -> None:
        transaction = DeltaTable(damaged.uri).transaction("OTHER")
        adds = add_actions(transaction.read_files(), data_change=False)
        transaction.add_files([replace(add, tags={"theirs": "1"}) for add in adds])
        transaction.commit()

    meanwhile(monkeypatch, tag)
    with pytest.raises(ConcurrentAppendError, match="'rounded', which is added here too"):
        damaged.repair_statistics()
    assert damaged.repair_statistics().num_files == 1
    tags = damaged.snapshot().files(["tags"])["tags"].to_pylist()
    assert tags == [[("theirs", "1")]] * 4


def test_a_file_that_cannot_be_read_is_passed_by(damaged: DeltaTable, tmp_path: Path) -> None:
    (tmp_path / "rounded").write_bytes(bytes((tmp_path / "rounded").stat().st_size))
    assert findings(damaged.check()) == {}
    assert damaged.repair_statistics().num_files == 0


def test_the_engine_itself_finds_the_rows_by_either_bounds(damaged: DeltaTable) -> None:
    for _ in range(2):
        for value in (LOW, HIGH):
            predicate = pc.field("d") == pa.scalar(value, pa.decimal128(38, 10))
            found = damaged.snapshot().files(["path"], predicate)["path"].to_pylist()
            assert {"exact", "rounded"} <= set(found)
        damaged.repair_statistics()


def test_bounds_of_a_file_with_deleted_rows_are_not_marked_as_tight(damaged: DeltaTable) -> None:
    """The footer counts in the deleted rows."""
    snapshot = damaged.snapshot()
    files = snapshot.files()
    index = files.column_names.index("deletionVector")
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    vectors = pa.array([vector] * files.num_rows, files.schema.field(index).type)
    [found] = find_rounded_statistics(snapshot, files.set_column(index, "deletionVector", vectors))
    stats = json.loads(found.stats, parse_float=Decimal)
    assert (stats["tightBounds"], stats["minValues"]["d"]) == (False, LOW)
