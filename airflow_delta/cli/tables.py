"""Print rows of texts as a table: with rich on a terminal, and as plain columns elsewhere.

Control characters are escaped in both, and nothing in a text is taken as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_delta.cli.output import print_line, results_stream, writing_results
from airflow_delta.engine.public_text import public_text

__all__ = ["print_table"]

_WIDEST = 60
"""The widest column that is padded with spaces."""


def print_table(
    columns: Sequence[str],
    chunks: Iterable[Sequence[Sequence[str]]],
    *,
    numbers: Iterable[str] = (),
) -> None:
    """Print rows, chunk by chunk, so that only one is in memory.

    Args:
        columns: the headings.
        chunks: the rows, each with a text for each column.
        numbers: the columns that are aligned to the right.
    """
    right = frozenset(numbers)
    print_chunk = _print_rich if results_stream().isatty() else _print_plain
    has_heading = False
    for rows in chunks:
        print_chunk(columns, rows, right, heading=not has_heading)
        has_heading = True
    if not has_heading:
        print_chunk(columns, [], right, heading=True)


def _print_plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str], *, heading: bool
) -> None:
    cells = [[public_text(cell) for cell in row] for row in rows]
    widths = [
        min(_WIDEST, max(map(len, (name, *(row[index] for row in cells)))))
        for index, name in enumerate(columns)
    ]
    for row in [[*columns], *cells] if heading else cells:
        padded = (
            f"{cell:>{width}}" if name in right else f"{cell:<{width}}"
            for name, cell, width in zip(columns, row, widths, strict=True)
        )
        print_line("  ".join(padded).rstrip())


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str], *, heading: bool
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=heading, header_style="bold")
    for name in columns:
        justify = "right" if name in right else "left"
        table.add_column(Text(public_text(name)), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(public_text(cell)) for cell in row))
    with writing_results():
        Console(file=results_stream(), highlight=False).print(table)
