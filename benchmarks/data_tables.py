"""The tables of the benchmarks that read rows, which are made once and kept.

Arrow writes the data files, so that neither side reads its own. Delta Spark makes the deletes and updates,
on hard links to the same data files. Each table is deterministic, except for the names of its files.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.tables import START_MS, made

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FILES",
    "REGIONS",
    "changed",
    "changed_small_files",
    "deletable_small_files",
    "large",
    "merge_source",
    "mergeable",
    "parquet_files",
    "small_files",
    "with_added_column",
    "with_properties",
    "with_vectors",
]

FILES = 200
"""How many data files the large tables have."""

REGIONS = tuple(f"region-{number:02}" for number in range(20))
"""The partitions of the partitioned tables."""

_SOURCE = "_source"
_THOUSAND = 1000
_SMALL_ROWS = 10
_SMALL_COMMITS = 10
_SMALL_SOURCES = 100
"""So many small files are different ones; a file system limits how many links one may have."""

_TYPES = {
    "id": "long",
    "number": "integer",
    "ratio": "double",
    "price": "decimal(12,2)",
    "at": "timestamp",
    "day": "date",
    "name": "string",
    "note": "string",
}
_FIRST_DAY = dt.date(2024, 1, 1)


def large(work: Path, rows: int, *, partitioned: bool = False, files: int = FILES) -> Path:
    """Rows in files in the order of ``id``; or of each region the tenth part of its files."""
    name = f"data-{'partitioned' if partitioned else 'plain'}-{rows}"
    if files != FILES:
        name += f"-{files}"
    return made(work / name, lambda root: _write_large(root, rows, files, partitioned=partitioned))


def with_vectors(work: Path, rows: int, *, partitioned: bool = False, files: int = FILES) -> Path:
    """The same after a delete of two rows of a hundred, anywhere: each file has a deletion vector."""
    source = large(work, rows, partitioned=partitioned, files=files)
    return _after_delete(source, "pmod(hash(id), 50) = 0")


def with_added_column(work: Path, rows: int, *, files: int) -> Path:
    """The table of `with_vectors` after ``ALTER TABLE … ADD COLUMN``: no file has the column."""
    return _with_vectors_enabled(
        with_vectors(work, rows, files=files),
        "added",
        "ALTER TABLE {table} ADD COLUMN remark STRING",
    )


def changed(work: Path, rows: int, *, vectors: bool) -> Path:
    """A table with a change data feed from version 1 on: rows inserted, updated, merged, and deleted."""
    source = large(work, rows)
    step = rows // 20

    def between(first: int, end: int) -> str:
        return f"id >= {first * step} AND id < {end * step}"

    def make(root: Path) -> None:
        table = _sql_name(root)
        properties = ["delta.enableChangeDataFeed"]
        properties += ["delta.enableDeletionVectors"] if vectors else []
        source_rows = f"(SELECT * FROM {_sql_name(source)} WHERE {between(0, 2)})"
        merge = (
            f"MERGE INTO {table} AS t USING {source_rows} AS s ON t.id = s.id "
            "WHEN MATCHED AND s.number % 10 = 2 THEN UPDATE SET t.price = 0 "
            "WHEN MATCHED AND s.number % 10 = 3 THEN DELETE"
        )
        new = f"SELECT id + {rows} AS id, * EXCEPT (id) FROM {_sql_name(source)}"
        _change(
            root,
            source,
            properties,
            [
                f"INSERT INTO {table} {new} WHERE {between(0, 4)}",
                f"UPDATE {table} SET ratio = -ratio WHERE {between(4, 6)} AND number % 10 = 0",
                f"DELETE FROM {table} WHERE {between(6, 8)} AND number % 10 = 1",
                merge,
                f"DELETE FROM {table} WHERE {between(12, 20)}",
            ],
        )

    return made(work / f"data-changed{'-vectors' if vectors else ''}-{rows}", make)


def small_files(work: Path, files: int, *, partitioned: bool = False) -> Path:
    """Files of ten rows, with a checkpoint of Delta Spark's; partitioned by day, a year of them."""
    name = f"data-small{'-partitioned' if partitioned else ''}-{files}"
    return made(work / name, lambda root: _write_small(root, files, {}, partitioned=partitioned))


def parquet_files(work: Path, files: int, *, partitioned: bool = False) -> Path:
    """The data files of `small_files` without a log: a directory of Parquet files."""

    def make(root: Path) -> None:
        (root / "_delta_log").rmdir()
        for _ in _link_small(root, files, _SMALL_ROWS, partitioned=partitioned):
            pass

    return made(work / f"parquet{'-partitioned' if partitioned else ''}-{files}", make)


def changed_small_files(work: Path, files: int) -> Path:
    """Small files with a change data feed from version 0 on; at last each gets a deletion vector."""
    feed = {"delta.enableChangeDataFeed": "true"}
    source = made(work / f"data-small-feed-{files}", lambda root: _write_small(root, files, feed))
    return _after_delete(source, f"id % {_SMALL_ROWS} = 3")


def with_properties(work: Path, rows: int, *properties: str) -> Path:
    """The large table with properties that are true, such as ``delta.enableDeletionVectors``."""
    source = large(work, rows)
    names = "-".join(name.removeprefix("delta.enable") for name in properties)
    return made(work / f"data-{names}-{rows}", lambda root: _change(root, source, properties, ()))


def mergeable(work: Path, rows: int, *properties: str, updates: float, inserts: float) -> Path:
    """A table with properties, and in the directory that `merge_source` gives rows to be merged into it.

    Args:
        work: the folder of all tables.
        rows: the number of rows of the table.
        properties: its properties that are true.
        updates: the share of its rows that have a match.
        inserts: the number of other rows to be merged, as a share of its rows.
    """
    table = with_properties(work, rows, *properties) if properties else large(work, rows)
    source = made(
        work / f"data-source-{updates:g}-{inserts:g}-{rows}",
        lambda root: _write_source(root, rows, updates, inserts),
    )

    def make(root: Path) -> None:
        shutil.copytree(table, root, copy_function=os.link, dirs_exist_ok=True)
        shutil.copytree(source, root / _SOURCE, copy_function=os.link)

    return made(work / f"{table.name}-{updates:g}-{inserts:g}", make)


def merge_source(table: str | Path) -> str:
    """The directory with the rows to be merged into a table of `mergeable`."""
    return str(Path(table, _SOURCE))


def deletable_small_files(work: Path, rows: int) -> Path:
    """Files of a thousand rows, with ``delta.enableDeletionVectors``."""
    source = made(
        work / f"data-thousands-{rows}",
        lambda root: _write_small(root, rows // _THOUSAND, {}, each=_THOUSAND),
    )
    return made(
        work / f"{source.name}-deletable",
        lambda root: _change(root, source, ("delta.enableDeletionVectors",), ()),
    )


def _write_large(root: Path, rows: int, files: int, *, partitioned: bool) -> None:
    each = rows // files
    adds = []
    for number in range(files):
        folder, values = "", {}
        if partitioned:
            region = REGIONS[number % len(REGIONS)]
            folder, values = f"region={region}/", {"region": region}
        path = f"{folder}part-{number:05}.snappy.parquet"
        data = _rows(number * each, each)
        _write_parquet(data, root / path)
        adds.append(_add(root, path, values, _statistics(data)))
    _write_log(root, [adds], ("region",) if partitioned else (), {})


def _write_source(root: Path, rows: int, updates: float, inserts: float) -> None:
    """Rows anywhere in the table with another price, and as many new ones."""
    import numpy as np
    import pyarrow as pa

    each = rows // FILES
    for number in range(FILES):
        chance = np.random.default_rng((number, each))
        found = _rows(number * each, each)
        updated = found.filter(pa.array(chance.random(each) < updates))
        new = found.filter(pa.array(chance.random(each) < inserts))
        ids = pa.array(new["id"].to_numpy() + rows)
        new = new.set_column(0, "id", ids)
        merged = pa.concat_tables([updated, new])
        prices = pa.array(chance.random(merged.num_rows) * 1e5).cast(pa.decimal128(12, 2))
        index = merged.column_names.index("price")
        path = root / f"part-{number:05}.snappy.parquet"
        _write_parquet(merged.set_column(index, "price", prices), path)


def _write_small(
    root: Path,
    files: int,
    properties: Mapping[str, str],
    *,
    partitioned: bool = False,
    each: int = _SMALL_ROWS,
) -> None:
    adds = [
        _add(root, path, values, statistics)
        for path, values, statistics in _link_small(root, files, each, partitioned=partitioned)
    ]
    commits = [adds[first::_SMALL_COMMITS] for first in range(_SMALL_COMMITS)]
    _write_log(root, commits, ("day",) if partitioned else (), properties)
    # That is the commit that makes the peer write a checkpoint.
    _run([_set_properties(root, {"delta.checkpointInterval": _SMALL_COMMITS})])


def _link_small(
    root: Path, files: int, each: int, *, partitioned: bool
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Make small files, and give the path, the partition values and the statistics of each."""
    sources = []
    for number in range(_SMALL_SOURCES):
        data = _rows(number * each, each)
        source = root / "_sources" / f"{number}.parquet"
        _write_parquet(data.drop_columns("day") if partitioned else data, source)
        sources.append((source, _statistics(data)))
    for number in range(files):
        source, statistics = sources[number % _SMALL_SOURCES]
        day = str(_FIRST_DAY + dt.timedelta(number % 365))
        path = f"day={day}/part-{number:06}.parquet" if partitioned else f"part-{number:06}.parquet"
        (root / path).parent.mkdir(exist_ok=True)
        os.link(source, root / path)
        yield path, {"day": day} if partitioned else {}, statistics


def _rows(first_id: int, count: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(first_id)
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    names = pa.array([f"name of the {number}th" for number in range(1000)])
    days = np.datetime64(_FIRST_DAY) + chance.integers(0, 365, count)
    notes = pa.array(chance.integers(10**14, 10**15, count)).cast(pa.string())
    return pa.table(
        {
            "id": ids,
            "number": chance.integers(0, 1_000_000, count).astype(np.int32),
            "ratio": chance.random(count),
            "price": pa.array(chance.random(count) * 1e5).cast(pa.decimal128(12, 2)),
            "at": pa.array(START_MS * 1000 + ids * 1_000_000).cast(pa.timestamp("us", "UTC")),
            "day": pa.array(days.astype("datetime64[D]")),
            "name": names.take(pa.array(chance.integers(0, 1000, count))),
            "note": notes,
        }
    )


def _write_parquet(rows: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    # Decimals as Spark writes them.
    pq.write_table(rows, path, compression="snappy", store_decimal_as_integer=True)


def _statistics(rows: pa.Table) -> str:
    import pyarrow.compute as pc

    bounds = {name: pc.min_max(rows[name]) for name in rows.column_names}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": {
                name: _json_value(bound["min"].as_py()) for name, bound in bounds.items()
            },
            "maxValues": {
                name: _json_value(bound["max"].as_py()) for name, bound in bounds.items()
            },
            "nullCount": dict.fromkeys(bounds, 0),
        }
    )


def _json_value(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return float(value)
        case _:
            return value


def _add(root: Path, path: str, partition_values: dict[str, str], statistics: str) -> Any:
    return {
        "path": path,
        "partitionValues": partition_values,
        "size": (root / path).stat().st_size,
        "modificationTime": START_MS,
        "dataChange": True,
        "stats": statistics,
    }


def _write_log(
    root: Path,
    commits: Sequence[Sequence[Any]],
    partition_columns: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """A commit with the metadata and the first adds, and one for each of the others."""
    extra = {name: "string" for name in partition_columns if name not in _TYPES}
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in {**_TYPES, **extra}.items()
    ]
    metadata = {
        "id": "0b2c6f52-8d0f-4d0a-9b2e-0f5f4f3f7c11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_columns),
        "configuration": properties,
        "createdTime": START_MS,
    }
    begin = [
        # The lowest writer version that knows of change data feeds.
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4 if properties else 2}},
        {"metaData": metadata},
    ]
    for version, adds in enumerate(commits):
        actions = [*(() if version else begin), *({"add": add} for add in adds)]
        with (root / "_delta_log" / f"{version:020}.json").open("w", encoding="utf-8") as log:
            log.writelines(json.dumps(action) + "\n" for action in actions)


def _after_delete(source: Path, condition: str) -> Path:
    """Make a table with deletion vectors, by a delete."""
    return _with_vectors_enabled(source, "vectors", f"DELETE FROM {{table}} WHERE {condition}")


def _with_vectors_enabled(source: Path, suffix: str, statement: str) -> Path:
    """Make a table with deletion vectors enabled, by a statement that changes another one."""
    return made(
        source.with_name(f"{source.name}-{suffix}"),
        lambda root: _change(
            root,
            source,
            ("delta.enableDeletionVectors",),
            [statement.format(table=_sql_name(root))],
        ),
    )


def _change(root: Path, source: Path, properties: Iterable[str], statements: Sequence[str]) -> None:
    """Make a table of the same data files with properties, and run statements on it."""
    shutil.copytree(source, root, copy_function=os.link, dirs_exist_ok=True)
    _run([_set_properties(root, dict.fromkeys(properties, "true")), *statements])


def _set_properties(root: Path, properties: Mapping[str, object]) -> str:
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    return f"ALTER TABLE {_sql_name(root)} SET TBLPROPERTIES ({settings})"


def _sql_name(root: Path) -> str:
    return f"delta.`{root.resolve()}`"


def _run(statements: Sequence[str]) -> None:
    """Run statements with Delta Spark in a process of its own, which ends its JVM."""
    process = get_context("spawn").Process(target=_run_here, args=(statements,))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"Delta Spark failed at {statements}")


def _run_here(statements: Sequence[str]) -> None:
    from benchmarks.spark_sessions import delta_session

    spark = delta_session(memory="4g")
    for statement in statements:
        spark.sql(statement).collect()
