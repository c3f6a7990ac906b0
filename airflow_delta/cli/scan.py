"""``airflow-delta scan URI``: the rows of a version, on the terminal or as a file.

Rows are read and written batch by batch, so memory stays bounded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airflow_delta.cli.options import (
    POSITIVE,
    at_most_one,
    json_option,
    subcommand,
    version_options,
)
from airflow_delta.cli.output import print_note, results_stream
from airflow_delta.cli.progress import show_progress
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.data_files.scan import Scan
    from airflow_delta.engine.progress import Reporter

__all__ = ["scan"]

# Not those of `row_formats`, which needs pyarrow.
_FORMATS = ("table", "csv", "json", "parquet", "arrow")
_BINARY = ("parquet", "arrow")
_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_MOST_SHOWN = 1_000
"""The most rows of a table for people, unless ``--limit`` says otherwise."""
_BATCH = 65_536
_LEAST_BATCH = 1_024


@subcommand(
    "scan",
    help="Read the rows of a version. They are printed as a table, as CSV, or with --json as an object in "
    "each line; or written to a file.",
)
@table_options(outside=True)
@version_options("Read")
@click.option(
    "--columns", default="", metavar="COLUMNS", help="The columns, such as id,day; default: all."
)
@click.option(
    "--where", metavar="CONDITION", help="Select rows, such as \"day >= '2026-01-01' AND id < 7\"."
)
@click.option("--limit", type=POSITIVE, metavar="N", help="The most rows to read.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="The format; default: that of the suffix of the output, or a table.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write instead of standard output.",
)
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@json_option
def scan(
    target: Target,
    *,
    version: int | None,
    timestamp: str | None,
    columns: str,
    where: str | None,
    limit: int | None,
    format_: str | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read the rows, and print or write them.

    Raises:
        InvalidArgumentError: a column doesn't exist, the condition is invalid, the output exists or can't
            be written, or the format can't hold a column.
        DeltaError: the table, the version or a data file can't be read.
    """
    from airflow_delta.cli.row_formats import print_rows
    from airflow_delta.engine.model.sql_names import listed_columns
    from airflow_delta.engine.progress import report_progress

    at_most_one(version=version, timestamp=timestamp)
    name = _format(format_, output, as_json=as_json)
    names = [".".join(parts) for parts in listed_columns(columns, "--columns")]
    snapshot = target.open().snapshot(version=version, timestamp=timestamp)
    most = _MOST_SHOWN if name == "table" and limit is None else limit
    rows = snapshot.scan(names or None, where, batch_size=_batch_size(most, where))
    if output is None:
        first = _First(rows, most, looks_further=limit is None)
        print_rows(name, rows.schema, first)
        if limit is None and first.has_more:
            print_note(f"only the first {most:,} rows are shown; see --limit and --output")
        return
    total = snapshot.num_rows if where is None else None
    if total is not None and most is not None:
        total = min(total, most)
    # Not for rows that are printed: they are the progress.
    with (
        show_progress("scan", is_shown=not as_json),
        report_progress("read rows", "rows", total) as reporter,
    ):
        count = _write(rows, _First(rows, most), name, output, reporter, overwrite=overwrite)
    report = {
        "version": snapshot.version,
        "output": str(output),
        "format": name,
        "num_rows": count,
        "bytes_written": output.stat().st_size,
    }
    print_report(target.uri, report, as_json=as_json)


def _batch_size(most: int | None, where: str | None) -> int:
    """The rows of a batch: few if few are wanted, but many if most of them may be filtered out."""
    return _BATCH if most is None or where is not None else max(_LEAST_BATCH, min(most, _BATCH))


class _First:
    """The first rows of a scan, as batches.

    Args:
        scan: the scan.
        most: the most rows; None for all.
        looks_further: whether the scan goes on after these rows, until it has found one more or has ended.

    Attributes:
        has_more: whether rows were left out, once all batches were taken.
    """

    def __init__(self, scan: Scan, most: int | None, *, looks_further: bool = False) -> None:
        self._scan, self._most, self._looks_further = scan, most, looks_further
        self.has_more = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._most
        # Closed, so that no more files are read.
        with closing(iter(self._scan)) as batches:  # type: ignore[type-var]
            for batch in batches:
                if left is None:
                    yield batch
                    continue
                if left == 0:
                    self.has_more = self.has_more or batch.num_rows > 0
                    if self.has_more:
                        return
                    continue
                self.has_more = batch.num_rows > left
                taken = batch.slice(0, left)
                left -= taken.num_rows
                yield taken
                if self.has_more or (left == 0 and not self._looks_further):
                    return


def _format(format_: str | None, output: Path | None, *, as_json: bool) -> str:
    """Find the format from the options.

    Raises:
        click.UsageError: they contradict each other.
    """
    context = click.get_current_context(silent=True)
    if output is None:
        if as_json and format_ not in (None, "json"):
            raise click.UsageError(f"--json: not allowed with --format {format_}", context)
        name = "json" if as_json else format_ or "table"
        if name in _BINARY and results_stream().isatty():
            raise click.UsageError(
                f"{name} isn't for terminals; give the name of a file with --output", context
            )
        return name
    name = format_ or _SUFFIXES.get(output.suffix.lower(), "table")
    if name == "table":
        raise click.UsageError(
            "a table is only for standard output: give --format csv, json, parquet or arrow",
            context,
        )
    return name


def _write(
    scan: Scan,
    batches: Iterable[pa.RecordBatch],
    name: str,
    output: Path,
    reporter: Reporter,
    *,
    overwrite: bool,
) -> int:
    """Write rows to a file, which appears when it is complete.

    Returns:
        The number of rows.

    Raises:
        InvalidArgumentError: the file exists or can't be written, or the format can't hold a column.
    """
    from airflow_delta.cli.row_formats import row_writer
    from airflow_delta.engine.errors import InvalidArgumentError

    if output.exists() and not overwrite:
        raise InvalidArgumentError(f"--output: {output} exists; replace it with --overwrite")
    if output.exists() and not output.is_file():
        raise InvalidArgumentError(
            f"--output: {output} is no regular file; write to standard output"
        )
    output = output.resolve()  # The file, not the link to it, is replaced.
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    count = 0
    try:
        with part.open("wb") as sink, row_writer(name, scan.schema, sink) as write:
            for batch in batches:
                write(batch)
                count += batch.num_rows
                reporter.advance(batch.num_rows)
        if output.exists():
            shutil.copymode(output, part)
        part.replace(output)
    except OSError as error:
        raise InvalidArgumentError(f"--output: {output} can't be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return count
