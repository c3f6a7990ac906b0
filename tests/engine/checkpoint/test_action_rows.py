from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.checkpoint import action_rows
from airflow_delta.engine.checkpoint.action_rows import (
    ActionRows,
    FileActionTable,
    new_action_file,
)
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.row_encoder import RowEncoder
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError
from airflow_delta.engine.parquet import StoredFile, parse_stored_file
from tests.engine.checkpoint.contents import add_row, add_table, remove_row, remove_table

SMALL: dict[str, list[Any]] = {
    "protocol": [{"minReaderVersion": 1, "minWriterVersion": 2}],
    "txn": [{"appId": "a", "version": 1}, {"appId": "b", "version": 2}],
}


def files(*kinds: str) -> Iterator[FileActionTable]:
    """A table of seven actions for each kind asked for."""
    for place, kind in enumerate(kinds):
        numbers = range(100 * place, 100 * place + 7)
        rows = [add_row(n) if kind == "add" else remove_row(n) for n in numbers]
        yield kind, add_table(rows) if kind == "add" else remove_table(rows)


def written(*kinds: str) -> tuple[bytes, ActionRows]:
    stream = io.BytesIO()
    with new_action_file(stream, checkpoint_schema(), table="t", version=7) as rows:
        rows.write_non_file_actions(SMALL)
        rows.write_files(files(*kinds))
    return stream.getvalue(), rows


def read(content: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    return file.read()


def paths(content: bytes, kind: str) -> list[str]:
    return [row[kind]["path"] for row in read(content).to_pylist() if row[kind]]


def test_row_groups_keep_the_order_of_the_rows_and_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 3)
    content, rows = written("add", "add", "remove", "add", "remove")
    assert paths(content, "add") == [
        add_row(n)["path"] for start in (0, 100, 300) for n in range(start, start + 7)
    ]
    assert paths(content, "remove") == [
        remove_row(n)["path"] for start in (200, 400) for n in range(start, start + 7)
    ]
    assert (rows.num_actions, rows.num_adds, rows.num_removes) == (38, 21, 14)
    assert rows.adds_size_sum == sum(
        row["add"]["size"] for row in read(content).to_pylist() if row["add"]
    )
    footer = pq.read_metadata(io.BytesIO(content))
    sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert sizes[0] == 3
    assert sorted(sizes[1:]) == [2, *[3] * 11]


def test_several_row_groups_are_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 7)
    together = threading.Barrier(2, timeout=20)
    encode = RowEncoder.files

    def meeting(self: RowEncoder, *args: Any, **kwargs: Any) -> Any:
        together.wait()
        return encode(self, *args, **kwargs)

    monkeypatch.setattr(RowEncoder, "files", meeting)
    assert len(paths(written("add", "add")[0], "add")) == 14


def test_few_row_groups_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 7)
    drawn, appended, most = 0, 0, 0
    append = ActionRows.append

    def counted() -> Iterator[FileActionTable]:
        nonlocal drawn, most
        for item in files(*["add"] * 20):
            drawn += 1
            most = max(most, drawn - appended)
            yield item

    def counting(self: ActionRows, *args: Any) -> None:
        nonlocal appended
        append(self, *args)
        appended += 1

    monkeypatch.setattr(ActionRows, "append", counting)
    stream = io.BytesIO()
    with new_action_file(stream, checkpoint_schema(), table="t", version=7) as rows:
        rows.write_files(counted())
    assert appended == 20
    assert most <= 2 * action_rows._ENCODERS + 1


class Text(bytearray):
    """Memory of a table that can be seen to be given back."""


def test_a_row_group_that_is_written_is_forgotten_before_the_next_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 14)
    forgotten = []

    def watched() -> Iterator[FileActionTable]:
        gone: list[threading.Event] = []
        for number, (kind, table) in enumerate(files(*["add"] * 10)):
            nulls, offsets, data = table["path"].chunk(0).buffers()
            text = Text(data.to_pybytes())
            gone.append(threading.Event())
            weakref.finalize(text, gone[-1].set)
            paths = pa.Array.from_buffers(
                pa.string(), table.num_rows, [nulls, offsets, pa.py_buffer(text)]
            )
            del text
            yield kind, table.set_column(table.column_names.index("path"), "path", paths)
            del paths
            # Two tables fill a row group. Two of these are drawn to see whether threads are worth it.
            if number >= 4:
                full = number - number % 2
                forgotten.append(all(event.wait(5) for event in gone[:full]))

    with new_action_file(io.BytesIO(), checkpoint_schema(), table="t", version=7) as rows:
        rows.write_files(watched())
    assert forgotten == [True] * 6


def test_a_file_without_actions_has_its_columns() -> None:
    stream = io.BytesIO()
    with new_action_file(stream, checkpoint_schema(), table="t", version=7):
        pass
    assert read(stream.getvalue()).schema.names == checkpoint_schema().names


def test_what_fails_on_a_thread_is_raised_with_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 7)
    broken = [*files("add", "add"), ("add", add_table([add_row(1, size=None)] * 7))]
    stream = io.BytesIO()
    with (
        pytest.raises(CorruptLogError, match=r"version 7 can't be checkpointed.*size of"),
        new_action_file(stream, checkpoint_schema(), table="t", version=7) as rows,
    ):
        rows.write_files(broken)
    assert not stream.getvalue().endswith(b"PAR1")


def test_row_groups_of_another_file_are_taken_if_they_are_alike() -> None:
    content, _ = written("add", "remove")
    other = parse_stored_file(content)
    stream = io.BytesIO()
    with new_action_file(stream, checkpoint_schema(), table="t", version=8) as rows:
        rows.write_non_file_actions(SMALL)
        assert all(rows.can_append(other, group) for group in other.groups)
    with new_action_file(
        io.BytesIO(), checkpoint_schema(stats=False), table="t", version=8
    ) as rows:
        rows.write_non_file_actions(SMALL)
        assert not any(rows.can_append(other, group) for group in other.groups)


def other_writer(**settings: Any) -> StoredFile:
    """The same rows as another program might write them with pyarrow."""
    table = read(written("add")[0])
    stream = io.BytesIO()
    pq.write_table(table, stream, store_schema=False, **settings)
    return parse_stored_file(stream.getvalue())


@pytest.mark.parametrize(
    "settings", [{}, {"compression": "zstd"}, {"compression": "zstd", "write_statistics": False}]
)
def test_row_groups_of_other_writers_are_not_taken(settings: dict[str, Any]) -> None:
    other = other_writer(**settings)
    with new_action_file(io.BytesIO(), checkpoint_schema(), table="t", version=8) as rows:
        rows.write_non_file_actions(SMALL)
        assert not any(rows.can_append(other, group) for group in other.groups)


def unfinished(stream: io.BytesIO) -> ActionRows:
    rows = ActionRows(stream, checkpoint_schema(), table="t", version=7)
    rows.write_non_file_actions(SMALL)
    rows.write_files(files("add", "remove"))
    return rows


@pytest.mark.parametrize("attribute", ["num_actions", "num_adds", "num_removes"])
def test_a_footer_that_tells_other_numbers_is_noticed(attribute: str) -> None:
    rows = unfinished(io.BytesIO())
    setattr(rows, attribute, getattr(rows, attribute) + 1)
    with pytest.raises(InvalidTableError, match=r"version 7 was not written: its footer has"):
        rows.close()


class Lossy(io.BytesIO):
    """A stream that loses what it is given third."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def write(self, data: Any) -> int:
        self.calls += 1
        return len(data) if self.calls == 3 else super().write(data)


def test_a_file_that_lacks_bytes_is_noticed() -> None:
    rows = unfinished(Lossy())
    with pytest.raises(InvalidTableError, match=r"row groups end at \d+, and its footer begins at"):
        rows.close()


@pytest.mark.parametrize("length", [10, 4000, 5000, 70_000])
def test_paths_may_be_longer_than_statistics(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 2)
    long = add_row(1, path="x" * length)
    stream = io.BytesIO()
    with new_action_file(stream, checkpoint_schema(), table="t", version=7) as rows:
        rows.write_non_file_actions(SMALL)
        rows.write_files([("add", add_table([add_row(2), add_row(3), long, long, add_row(4)]))])
    assert [len(path) for path in paths(stream.getvalue(), "add")].count(length) == 2


def wide(columns: int) -> pa.Schema:
    """The schema of a checkpoint of a table of many columns, with typed statistics of all."""
    bounds = pa.struct([(f"c{n}", pa.int64()) for n in range(columns)])
    stats = pa.struct([("minValues", bounds), ("maxValues", bounds), ("nullCount", bounds)])
    return checkpoint_schema(parsed=[pa.field("stats_parsed", stats)])


def test_a_row_group_is_small_by_rows_and_by_bytes() -> None:
    rows = ActionRows(io.BytesIO(), checkpoint_schema(), table="t", version=7)
    for kind in ("add", "remove"):
        assert rows.is_small(kind, 24_999, 1_000_000)
        assert not rows.is_small(kind, 25_000, 1_000_000)
        assert not rows.is_small(kind, 5_000, 64 << 20)
    # Nearly nothing once encoded, where most columns have no statistics; and much to make.
    rows = ActionRows(io.BytesIO(), wide(1000), table="t", version=7)
    assert not rows.is_small("add", 1000, 10_000)  # 24,000 bytes each, of the 16 MiB that are small
    assert rows.is_small("add", 600, 10_000)
    assert rows.is_small("remove", 1000, 10_000)


@pytest.mark.parametrize(("columns", "rows"), [(1, 100), (100, 21), (300, 8)])
def test_typed_columns_count_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, columns: int, rows: int
) -> None:
    """Of 100 columns three leaves of eight bytes; of more no more than is allowed for a row."""
    monkeypatch.setattr(action_rows, "_GROUP_BYTES", 50_000)
    monkeypatch.setattr(action_rows, "_MOST_TYPED_BYTES", 6_000)
    stream = io.BytesIO()
    with new_action_file(stream, wide(columns), table="t", version=7) as file:
        file.write_non_file_actions(SMALL)
        adds = add_table([add_row(n, stats=None) for n in range(100)])
        file.write_files([("add", adds), ("remove", remove_table([remove_row(1)] * 100))])
    footer = pq.read_metadata(io.BytesIO(stream.getvalue()))
    sizes = [footer.row_group(number).num_rows for number in range(1, footer.num_row_groups)]
    assert abs(sizes[0] - rows) <= 1
    assert sum(sizes) == 200
    assert max(sizes) == 100  # the removes, which have no typed columns
