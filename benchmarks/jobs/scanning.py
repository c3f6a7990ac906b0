"""Jobs that read rows into this process, and `deltalake`'s ways to do so.

The tables have eight columns, and 200 files in the order of ``id``; those with deletion vectors have one
for each file, with two rows in a hundred. Both sides open the table while the clock runs. The files are in
the cache of the system.

`deltalake` reads a whole table by `to_pyarrow_table`, which refuses tables with deletion vectors, and all
else by a query of DataFusion (`QueryBuilder`).

The answer is the number of rows. Where the result is a table, it is a hash of that number and of the sums
of the numbers and of the lengths of texts, computed after time and memory were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data_tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import ENGINE, Job, Outcome, Side
from benchmarks.measure import Stopwatch

__all__ = ["JOBS"]

_ROWS = 10_000_000
_COLUMNS = ("id", "name")
_ROW = "id = 123456"

_OUR_MODULES = (
    *ENGINE,
    "airflow_delta.engine.snapshot.scanning",
    "pyarrow.compute",
)
_PEER_MODULES = ("deltalake", "arro3.core", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.compute")


def _our_table(uri: str, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
    return our_table(uri).snapshot().to_arrow(columns, where)


def _our_batches(uri: str) -> int:
    return sum(batch.num_rows for batch in our_table(uri).snapshot().scan())


def _peer_table(uri: str) -> Any:
    return peer_table(uri).to_pyarrow_table()


def _query(uri: str, columns: Sequence[str] = ("*",), where: str | None = None) -> Any:
    from deltalake import QueryBuilder

    condition = "" if where is None else f" WHERE {where}"
    rows = QueryBuilder().register("rows", peer_table(uri))
    return rows.execute(f"SELECT {', '.join(columns)} FROM rows{condition}")


def _peer_query(uri: str, columns: Sequence[str] = ("*",), where: str | None = None) -> Any:
    return _query(uri, columns, where).read_all()


def _peer_batches(uri: str) -> int:
    return sum(batch.num_rows for batch in _query(uri))


def _checked(read: Callable[[str], Any], uri: str) -> Outcome:
    watch = Stopwatch()
    found = read(uri)
    outcome = watch.stop()
    return outcome(found if isinstance(found, int) else _answer(found), {})


def _answer(found: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.table(found)
    sums = []
    for name in sorted(set(table.column_names).intersection(("id", "number", "name", "note"))):
        column = table[name]
        if not pa.types.is_integer(column.type):
            column = pc.utf8_length(column.cast(pa.string()))
        sums.append(pc.sum(column).as_py())
    return hash((table.num_rows, *sums))


def _job(
    name: str,
    title: str,
    ours: Callable[[str], Any],
    peers: Callable[[str], Any],
    *,
    peer: str = "DataFusion",
    table: Callable[[Path, int], Path] = data_tables.large,
) -> Job:
    return Job(
        name,
        title,
        table,
        Side("ours", ours, loads=_OUR_MODULES),
        (Side(peer, peers, loads=_PEER_MODULES),),
        only_by_name=True,
        actions=_ROWS,
    )


_TABLE = (partial(_checked, _our_table), partial(_checked, _peer_table))
_TWO = (
    partial(_checked, partial(_our_table, columns=_COLUMNS)),
    partial(_checked, partial(_peer_query, columns=_COLUMNS)),
)
_ONE = (
    partial(_checked, partial(_our_table, where=_ROW)),
    partial(_checked, partial(_peer_query, where=_ROW)),
)
_BATCHES = (partial(_checked, _our_batches), partial(_checked, _peer_batches))
_VECTORS = data_tables.with_vectors

JOBS = (
    _job("scan-table", "all rows, as a table in memory", *_TABLE, peer="to_pyarrow_table"),
    _job("scan-columns", "two columns of eight, as a table", *_TWO),
    _job("scan-row", "one row by its id", *_ONE),
    _job("scan-batches", "all rows in batches, which are dropped", *_BATCHES),
    _job(
        "scan-columns-vectors",
        "two columns of a table with deletion vectors",
        *_TWO,
        table=_VECTORS,
    ),
    _job("scan-row-vectors", "one row of it by its id", *_ONE, table=_VECTORS),
    _job("scan-batches-vectors", "all of its rows in batches", *_BATCHES, table=_VECTORS),
)
