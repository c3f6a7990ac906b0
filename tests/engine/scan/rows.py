"""Tables of rows in memory, and their statistics as careful and as careless writers write them."""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.parquet.action_file import ActionFile, read_pieces
from airflow_delta.engine.arrow.statistics.typed import stats_type as typed_stats_type
from airflow_delta.engine.arrow.statistics.typed import typed_stats
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.engine.scan.file_pruner import FilePruner
from airflow_delta.engine.storage.memory import MemoryStorage

__all__ = [
    "adds",
    "checkpoint",
    "kept",
    "kept_of_checkpoint",
    "schema",
    "spark_maximum",
    "statistics",
    "stats",
    "to_json",
]

PREFIX = 32


def schema(**types: Any) -> Any:
    """A schema of nullable columns, from the JSON form of their types."""
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in types.items()
    ]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}), "test")


def adds(*stats: str | None, partitions: Iterable[dict[str, str | None]] | None = None) -> pa.Table:
    """One add a text of statistics; its path is its number."""
    values = list(partitions) if partitions is not None else [{}] * len(stats)
    return pa.table(
        {
            "path": pa.array([str(number) for number in range(len(stats))]),
            "partitionValues": pa.array([list(value.items()) for value in values], STRING_MAP),
            "stats": pa.array(stats, pa.string()),
        }
    )


def kept(
    predicate: Any,
    files: pa.Table,
    columns: Any,
    *,
    partition_columns: tuple[str, ...] = (),
    mapping_mode: str = "none",
) -> list[int]:
    """The numbers of the files that a predicate keeps."""
    pruner = FilePruner(
        predicate,
        schema=columns,
        partition_columns=partition_columns,
        mapping_mode=mapping_mode,
        table="memory://table",
    )
    return [int(path) for path in pruner.prune(files)["path"].to_pylist()]


def checkpoint(
    files: pa.Table, columns: Any, *, text: bool = False, stats_type: pa.DataType | None = None
) -> ActionFile:
    """A checkpoint in which the adds have typed statistics.

    Args:
        files: the adds, with texts.
        columns: the schema.
        text: whether the texts are there, too.
        stats_type: another type of the struct than the schema gives.
    """
    type_ = stats_type or typed_stats_type(columns, columns=-1)
    texts = pa.concat_arrays(files["stats"].chunks)
    fields = {
        "path": files["path"].combine_chunks(),
        "partitionValues": files["partitionValues"].combine_chunks(),
        "stats_parsed": typed_stats(texts, type_),
    } | ({"stats": texts} if text else {})
    add = pa.StructArray.from_arrays([*fields.values()], [*fields])
    buffer = io.BytesIO()
    # Rows that are no adds stand before them.
    rows = pa.concat_arrays([pa.nulls(2, add.type), add])
    pq.write_table(pa.table({"add": rows}), buffer, row_group_size=max(len(rows) // 2, 1))
    storage = MemoryStorage(f"memory://{uuid.uuid4()}")
    path = "_delta_log/00000000000000000001.checkpoint.parquet"
    storage.create(path, buffer.getvalue())
    return ActionFile(storage, storage.head(path))


def kept_of_checkpoint(
    predicate: Any, file: ActionFile, columns: Any, *, partition_columns: tuple[str, ...] = ()
) -> list[int]:
    """The numbers of the files that a predicate keeps of those in a checkpoint."""
    pruner = FilePruner(
        predicate,
        schema=columns,
        partition_columns=partition_columns,
        mapping_mode="none",
        table="memory://table",
    )
    # One without columns has the same answer for all files, and none for a reader.
    row_filter = pruner if pruner.columns else None
    tables = read_pieces(file.pieces("add", ("path",), row_filter=row_filter), workers=1)
    if row_filter is None:
        tables = map(pruner.prune, tables)
    return [int(path) for table in tables for path in table["path"].to_pylist()]


def stats(
    *,
    low: dict[str, Any] | None = None,
    high: dict[str, Any] | None = None,
    nulls: dict[str, Any] | None = None,
    records: int | None = 10,
    **more: Any,
) -> str:
    """A text of statistics from its parts."""
    parts = {"numRecords": records, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps({**{k: v for k, v in parts.items() if v is not None}, **more})


def spark_maximum(text: str) -> str | None:
    """The maximum as Delta's writer for Spark cuts it: up to 64 characters, or none at all."""
    if len(text) <= PREFIX:
        return text
    for length in range(PREFIX, 2 * PREFIX):
        following = text[length] if length < len(text) else ""
        if not following:
            return text
        if following < "\x7f":
            return text[:length] + "\x7f"
        if following < "\U0010ffff":
            return text[:length] + "\U0010ffff"
    return None


def statistics(rows: Iterable[dict[str, Any]], types: dict[str, str]) -> dict[str, Any]:
    """Honest statistics of rows, by column of one of the types below; None where there are none."""
    rows = list(rows)
    low, high, nulls = {}, {}, {}
    for name, type_ in types.items():
        values = [row[name] for row in rows if row[name] is not None]
        nulls[name] = len(rows) - len(values)
        ordered = [value for value in values if not _is_nan(value)]
        if type_ not in _WRITTEN or not ordered:
            continue
        write_low, write_high = _WRITTEN[type_]
        lowest, highest = write_low(min(ordered, key=_key)), write_high(max(ordered, key=_key))
        if lowest is not None:
            low[name] = lowest
        if highest is not None:
            high[name] = highest
    return {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}


@dataclass(frozen=True)
class Number:
    """A number that is written as the given text."""

    text: str


def to_json(value: Any) -> str:
    """JSON text, with each `Number` as it is."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{to_json(v)}" for k, v in value.items()) + "}"
    return value.text if isinstance(value, Number) else json.dumps(value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _milliseconds(zone: str) -> Callable[[datetime], str]:
    def write(value: datetime) -> str:
        floored = value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
        return floored.isoformat(timespec="milliseconds") + zone

    return write


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shortest_single(value: float) -> Any:
    if not math.isfinite(value):
        return None
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if pa.scalar(float(text), pa.float32()).as_py() == value:
            return Number(text)
    raise AssertionError(value)


def _same(value: Any) -> Any:
    return value


def _decimal(value: Decimal) -> Number:
    return Number(f"{value:f}")


def _lossy_decimal(value: Decimal) -> float:
    return float(value)


def _day(value: date) -> str:
    return value.isoformat()


_WRITTEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "long": (_same, _same),
    "double": (_finite, _finite),
    "float": (_shortest_single, _shortest_single),
    "decimal(10,2)": (_decimal, _decimal),
    "decimal(38,18)": (_lossy_decimal, _lossy_decimal),
    "string": (lambda text: text[:PREFIX], spark_maximum),
    "date": (_day, _day),
    "timestamp": (_milliseconds("Z"), _milliseconds("Z")),
    "timestamp_ntz": (_milliseconds(""), _milliseconds("")),
}
