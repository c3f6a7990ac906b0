"""Write record batches as CSV, lines of JSON, Parquet or Arrow, or print them as a table.

In JSON a row is an object (`row_values`). CSV has a heading; a null is nothing between two commas, and an
empty text is ``""``. Arrow is the file format in a file, and the stream format on standard output, which
can't seek.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa

from airflow_delta.cli.output import (
    flush_results,
    print_json_row,
    print_line,
    results_stream,
    writing_results,
)
from airflow_delta.cli.row_values import plain_rows
from airflow_delta.cli.tables import print_table
from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["print_rows", "row_writer"]

_CHUNK = 1_000
"""The number of rows that are printed at once."""

Write: TypeAlias = Callable[[pa.RecordBatch], None]


def row_writer(name: str, schema: pa.Schema, sink: BinaryIO) -> AbstractContextManager[Write]:
    """Open a writer of record batches for a file.

    Args:
        name: the format; not a table.
        schema: the schema of the batches.
        sink: where to write.

    Raises:
        InvalidArgumentError: the format can't hold a column, or a text isn't UTF-8.
    """
    if name == "csv":
        _check_csv(schema)
    return _WRITERS[name](schema, sink)


def print_rows(name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Print record batches to standard output.

    Args:
        name: the format. One that isn't text must not be printed to a terminal.
        schema: the schema of the batches.
        batches: the rows.

    Raises:
        InvalidArgumentError: the format can't hold a column, or a text isn't UTF-8.
    """
    if name == "table":
        numbers = [field.name for field in schema if _is_number(field.type)]
        print_table(schema.names, map(_cells, _chunks(batches)), numbers=numbers)
    elif name == "json":
        for batch in _chunks(batches):
            for row in plain_rows(batch):
                print_json_row(row)
    elif results_stream().isatty():
        # Control characters of a table must not reach the terminal.
        for line in _csv_lines(schema, batches):
            print_line(line)
    else:
        flush_results()
        writers = {**_WRITERS, "arrow": _write_arrow_stream}
        if name == "csv":
            _check_csv(schema)
        with writing_results(), writers[name](schema, results_stream().buffer) as write:
            for batch in batches:
                write(batch)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from (batch.slice(start, _CHUNK) for start in range(0, batch.num_rows, _CHUNK))


def _cells(batch: pa.RecordBatch) -> list[list[str]]:
    return [[_cell(value) for value in row.values()] for row in plain_rows(batch)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def _check_csv(schema: pa.Schema) -> None:
    refused = [
        field.name
        for field in schema
        if pa.types.is_nested(field.type)
        or pa.types.is_binary(field.type)
        or pa.types.is_large_binary(field.type)
    ]
    if refused:
        raise InvalidArgumentError(
            f"CSV can't hold the columns {', '.join(refused)}, which are nested or binary; name the others "
            "with --columns, or choose another --format"
        )


def _csv_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    _check_csv(schema)
    memory = io.BytesIO()
    with _write_csv(schema, memory) as write:
        for batch in batches:
            write(batch)
            yield from _split(memory)
            memory.seek(0)
            memory.truncate()
    yield from _split(memory)


def _split(memory: io.BytesIO) -> list[str]:
    # At the line breaks of CSV alone, of which values in quotes may have some too.
    text = memory.getvalue().decode("utf-8", errors="backslashreplace").removesuffix("\n")
    return text.split("\n") if text else []


@contextmanager
def _write_csv(schema: pa.Schema, sink: BinaryIO) -> Iterator[Write]:
    from pyarrow import csv

    with csv.CSVWriter(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _write_json(schema: pa.Schema, sink: BinaryIO) -> Iterator[Write]:  # noqa: ARG001 - as the others
    def write(batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, one JSON object per line."""
        for row in plain_rows(batch):
            sink.write(json.dumps(row).encode("ascii") + b"\n")

    yield write


@contextmanager
def _write_parquet(schema: pa.Schema, sink: BinaryIO) -> Iterator[Write]:
    from pyarrow import parquet

    with parquet.ParquetWriter(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _write_arrow(schema: pa.Schema, sink: BinaryIO) -> Iterator[Write]:
    with pa.ipc.new_file(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _write_arrow_stream(schema: pa.Schema, sink: BinaryIO) -> Iterator[Write]:
    with pa.ipc.new_stream(sink, schema) as writer:
        yield writer.write_batch


_WRITERS: dict[str, Callable[[pa.Schema, BinaryIO], AbstractContextManager[Write]]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}
