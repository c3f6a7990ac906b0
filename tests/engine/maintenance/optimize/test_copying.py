"""Files that are made by copying row groups, and those that can't be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import (
    BINARY,
    DOUBLE,
    LONG,
    STRING,
    AddFile,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.errors import DataFileError
from airflow_delta.engine.maintenance.optimize import copying
from tests.engine.maintenance.optimize.files_of_rows import check_statistics
from tests.row_tables import bag

SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("d", DOUBLE),
        StructField("text", STRING),
        StructField("new", STRING),
        StructField("s", StructType((StructField("x", LONG),))),
        StructField("raw", BINARY),
    )
)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(autouse=True)
def _small_groups_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_TINY", 1)


def rows(first: int, count: int = 50, *, nan: bool = False) -> pa.Table:
    values = np.arange(first, first + count)
    floats = values / 7
    if nan:
        floats[3] = np.nan
    return pa.table(
        {
            "id": pa.array(values),
            "d": pa.array(floats),
            "text": pa.array([None if n % 5 == 0 else f"text {n}" for n in values]),
            "s": pa.array([None if n % 7 == 0 else {"x": n} for n in values]),
            "raw": pa.array([bytes([n % 256]) for n in values]),
        }
    )


def table_of(
    root: Path,
    files: list[pa.Table],
    *,
    schema: StructType = SCHEMA,
    properties: dict[str, str] | None = None,
    **options: Any,
) -> DeltaTable:
    told = {"delta.enableDeletionVectors": "true", **(properties or {})}
    table = DeltaTable.create(str(root), schema, properties=told)
    transaction = table.transaction("WRITE", enforces=["rowTracking"])
    for number, file in enumerate(files):
        pq.write_table(file, root / f"{number}.parquet", row_group_size=20, **options)
        transaction.add_file(
            AddFile(
                f"{number}.parquet",
                {},
                (root / f"{number}.parquet").stat().st_size,
                1,
                data_change=True,
                stats=json.dumps(statistics(file)),
            )
        )
    transaction.commit()
    return table


def statistics(file: pa.Table) -> dict[str, Any]:
    if "d" not in file.column_names:
        return {"numRecords": file.num_rows}
    floats = [value for value in file["d"].to_pylist() if value is not None]
    bounds = {} if np.isnan(floats).any() else {"d": (min(floats), max(floats))}
    return {
        "numRecords": file.num_rows,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
        "nullCount": {"d": file["d"].null_count},
    }


def optimized(table: DeltaTable, files: list[pa.Table]) -> int:
    """Optimize a table, check its rows, and return how many new files are copies."""
    done = table.optimize(max_file_size=1 << 20)
    assert done.num_removed == len(files)
    expected = [{**row, "new": row.get("new")} for file in files for row in file.to_pylist()]
    assert bag(table.snapshot().to_arrow().to_pylist()) == bag(
        [{name: row.get(name) for name in SCHEMA.names} for row in expected]
    )
    assert done.num_added == 1
    return done.num_copied


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_files_that_are_alike_are_copied(tmp_path: Path, codec: str) -> None:
    files = [rows(0), rows(1000), rows(-70, 20)]
    table = table_of(tmp_path, files, compression=codec)
    assert optimized(table, files) == 1
    snapshot = table.snapshot()
    check_statistics(snapshot, snapshot.files()["path"].to_pylist())
    found = pq.ParquetFile(snapshot.file_uris()[0])
    assert found.metadata.num_row_groups == 7
    stats = json.loads(snapshot.files()["stats"][0].as_py())
    assert (stats["nullCount"]["new"], stats["minValues"]["d"]) == (120, -10.0)


def test_floats_with_nan_have_no_bounds(tmp_path: Path) -> None:
    files = [rows(0), rows(50, nan=True)]
    table = table_of(tmp_path, files)
    assert optimized(table, files) == 1
    snapshot = table.snapshot()
    assert "d" not in json.loads(snapshot.files()["stats"][0].as_py())["maxValues"]
    check_statistics(snapshot, snapshot.files()["path"].to_pylist())


def test_a_name_with_a_dot_is_not_a_path(tmp_path: Path) -> None:
    inner = StructType((StructField("b", LONG),))
    schema = StructType(
        (StructField("a.b", LONG), StructField("a", inner), StructField("c.d", LONG))
    )
    files = [
        pa.table({"a.b": [low, low + 1], "a": [{"b": 1000}, {"b": 2000}], "c.d": [low, None]})
        for low in (1, 3)
    ]
    table = table_of(tmp_path, files, schema=schema)
    assert table.optimize().num_copied == 1
    snapshot = table.snapshot()
    assert json.loads(snapshot.files()["stats"][0].as_py()) == {
        "numRecords": 4,
        "minValues": {"a.b": 1, "a": {"b": 1000}, "c.d": 1},
        "maxValues": {"a.b": 4, "a": {"b": 2000}, "c.d": 3},
        "nullCount": {"a.b": 0, "a": {"b": 0}, "c.d": 2},
        "tightBounds": True,
    }
    for text, count in (("`a.b` = 1", 1), ("`a`.`b` = 1000", 2), ("`c.d` >= 1", 2)):
        assert snapshot.to_arrow(predicate=text).num_rows == count, text


def in_another_order(file: pa.Table) -> pa.Table:
    return file.select([*reversed(file.column_names)])


def with_another_column(file: pa.Table) -> pa.Table:
    return file.append_column("new", pa.array(["x"] * file.num_rows))


def narrower(file: pa.Table) -> pa.Table:
    return file.set_column(0, "id", file["id"].cast(pa.int32()))


def in_another_case(file: pa.Table) -> pa.Table:
    return file.rename_columns(["ID", *file.column_names[1:]])


@pytest.mark.parametrize("change", [in_another_order, with_another_column, narrower])
def test_files_that_differ_are_written_anew(tmp_path: Path, change: Change) -> None:
    files = [rows(0), change(rows(1000))]
    assert optimized(table_of(tmp_path, files), files) == 0


@pytest.mark.parametrize("change", [narrower, in_another_case])
def test_files_unlike_the_table_are_written_anew(tmp_path: Path, change: Change) -> None:
    files = [rows(0), rows(1000)]
    table = table_of(tmp_path, [change(file) for file in files])
    assert optimized(table, files) == 0
    assert pq.read_schema(table.snapshot().file_uris()[0]).field("id").type == pa.int64()


def test_types_that_only_arrow_distinguishes_do_not_matter(tmp_path: Path) -> None:
    files = [rows(n).set_column(2, "text", rows(n)["text"].cast(pa.large_string())) for n in (0, 9)]
    assert optimized(table_of(tmp_path, files), files) == 1


def test_tiny_row_groups_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    files = [rows(0), rows(1000)]
    table = table_of(tmp_path, files)
    assert optimized(table, files) == 0
    assert pq.read_metadata(table.snapshot().file_uris()[0]).num_row_groups == 1


def test_with_row_tracking_only_files_that_hold_all_ids_are_copied(tmp_path: Path) -> None:
    files = [rows(0), rows(1000)]
    table = table_of(tmp_path, files, properties={"delta.enableRowTracking": "true"})
    before = table.snapshot().to_arrow(with_row_tracking=True)
    assert optimized(table, files) == 0
    tracked = table.snapshot()
    assert bag(tracked.to_arrow(with_row_tracking=True).to_pylist()) == bag(before.to_pylist())
    # Files that hold ids: copies of the new one, with the ids of its rows as they are.
    name = tracked.files()["path"][0].as_py()
    half = pq.read_table(tmp_path / name)
    transaction = table.transaction("WRITE", enforces=["rowTracking"])
    transaction.remove_files(tracked.files())
    for number, part in enumerate((half.slice(0, 50), half.slice(50))):
        path = tmp_path / f"half-{number}.parquet"
        pq.write_table(part, path, store_schema=False)
        stats = json.dumps({"numRecords": part.num_rows})
        size = path.stat().st_size
        transaction.add_file(AddFile(path.name, {}, size, 1, data_change=True, stats=stats))
    transaction.commit()
    assert table.optimize(max_file_size=1 << 20).num_copied == 1
    found = table.snapshot().to_arrow(with_row_tracking=True)
    assert bag(found.to_pylist()) == bag(before.to_pylist())


def test_a_file_that_changes_while_it_is_copied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, [rows(0), rows(1000)])
    plan_copy = copying.plan_copy

    def changed(*arguments: Any) -> Any:
        planned = plan_copy(*arguments)
        path = tmp_path / "1.parquet"
        path.write_bytes(path.read_bytes()[:-1])
        return planned

    monkeypatch.setattr("airflow_delta.engine.maintenance.optimize.bin_writer.plan_copy", changed)
    with pytest.raises(Exception, match=r"'1.parquet' .* it has \d+ bytes, and \d+ in the log"):
        table.optimize(max_file_size=1 << 20)
    assert table.latest_version() == 1
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["0.parquet", "1.parquet"]


def test_a_file_that_is_replaced_while_it_is_copied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a valid one of the same size, whose rows the bounds of the old footer don't bound."""
    files = [pa.table({"id": np.arange(first, first + 50)}) for first in (0, 50, 1000)]
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    table = DeltaTable.create(str(tmp_path), StructType((StructField("id", LONG),)))
    transaction = table.transaction("WRITE")
    for number, file in enumerate(files):
        pq.write_table(file, tmp_path / f"{number}.parquet", **options)
    sizes = {(tmp_path / f"{number}.parquet").stat().st_size for number in range(3)}
    assert len(sizes) == 1
    for number in range(2):
        path = f"{number}.parquet"
        transaction.add_file(AddFile(path, {}, *sizes, 1, data_change=True, stats=None))
    transaction.commit()
    plan_copy = copying.plan_copy

    def replaced(*arguments: Any) -> Any:
        planned = plan_copy(*arguments)
        assert planned is not None
        (tmp_path / "1.parquet").write_bytes((tmp_path / "2.parquet").read_bytes())
        return planned

    monkeypatch.setattr("airflow_delta.engine.maintenance.optimize.bin_writer.plan_copy", replaced)
    with pytest.raises(
        DataFileError, match=r"'1.parquet' .* was changed while it was copied"
    ) as found:
        table.optimize(max_file_size=1 << 20)
    assert found.value.path == "1.parquet"
    assert table.latest_version() == 1
    assert len([*tmp_path.glob("*.parquet")]) == 3


MAPPED = StructType(
    (
        StructField("id", LONG),
        StructField("x", LONG),
        StructField("s", StructType((StructField("y", LONG),))),
    )
)


def mapped_table(root: Path, mode: str, rename: Callable[[str], str]) -> DeltaTable:
    """A table with column mapping, whose files have other names than the physical ones."""
    table = DeltaTable.create(str(root), MAPPED, properties={"delta.columnMapping.mode": mode})

    def stored(field: StructField) -> pa.Field:
        metadata = field.metadata
        name = rename(metadata["delta.columnMapping.physicalName"])
        type_ = (
            pa.struct([stored(each) for each in field.data_type])
            if isinstance(field.data_type, StructType)
            else pa.int64()
        )
        return pa.field(
            name, type_, metadata={"PARQUET:field_id": str(metadata["delta.columnMapping.id"])}
        )

    schema = pa.schema([stored(field) for field in table.snapshot().schema])
    inner = schema.field(2).type.field(0).name
    transaction = table.transaction("WRITE")
    for number in range(2):
        values = [*range(number * 50, number * 50 + 50)]
        arrays = [pa.array(values), pa.array(values), pa.array([{inner: n} for n in values])]
        path = root / f"{number}.parquet"
        arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        pq.write_table(pa.table(arrays, schema=schema), path)
        stats = json.dumps({"numRecords": 50})
        add = AddFile(path.name, {}, path.stat().st_size, 1, data_change=True, stats=stats)
        transaction.add_file(add)
    transaction.commit()
    return table


@pytest.mark.parametrize(
    ("rename", "copies"),
    [
        (lambda name: name, 1),
        (lambda name: f"old-{name}", 0),
        (lambda name: name.upper(), 0),
    ],
    ids=["same", "others", "case"],
)
def test_with_field_ids_columns_may_have_other_names(
    tmp_path: Path, rename: Callable[[str], str], copies: int
) -> None:
    table = mapped_table(tmp_path, "id", rename)
    before = table.snapshot().to_arrow()
    assert table.optimize(max_file_size=1 << 20).num_copied == copies
    snapshot = table.snapshot()
    assert bag(snapshot.to_arrow().to_pylist()) == bag(before.to_pylist())
    for text, count in (("x >= 5", 95), ("id < 3", 3), ("x IS NULL", 0), ("s.y = 7", 1)):
        assert snapshot.to_arrow(predicate=text).num_rows == count, text
    names = [field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema]
    assert pq.read_schema(snapshot.file_uris()[0]).names == names
