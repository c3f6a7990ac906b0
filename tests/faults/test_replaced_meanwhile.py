"""A checkpoint of a classic name that another writer replaces while it is read.

Each of the two is whole and as good as the other; a mixture of both is neither. Whoever has read the
footer of one and meets the values of the other must not take it for damaged, let alone for whole.
"""

from __future__ import annotations

import io
import itertools
import random
import warnings
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.deep import deep_but_for
from tests.faulty_storage import Fault, FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    commit_file,
    commits,
    file_rows,
    parquet,
    small_rows,
    state_of,
    states,
)

_RANDOM = random.Random(3)
NAMES = [_RANDOM.randbytes(12).hex() for _ in range(16)]
"""Names that can't be compressed: their order makes no difference to the size of a file."""

HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), *(add(name, size=2**40 + int(name[:9], 16)) for name in NAMES)],
    [add("last")],
]
STATES = states(HISTORY)
CHECKPOINT = "_delta_log/00000000000000000000.checkpoint.parquet"


def checkpoint(order: list[int]) -> bytes:
    adds = file_rows(STATES[0])
    return parquet([*small_rows(STATES[0]), *(adds[place] for place in order)])


def layout(content: bytes) -> list[tuple[int, int]]:
    """Where each chunk of each row group is."""
    footer = pq.read_metadata(io.BytesIO(content))
    chunks = (
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    )
    return [(chunk.data_page_offset, chunk.total_compressed_size) for chunk in chunks]


ORDER = [*range(len(NAMES))]
ONE = checkpoint(ORDER)


def of_another_layout() -> bytes:
    return checkpoint([*reversed(ORDER[:-1]), ORDER[-1]])


def of_the_same_layout() -> bytes:
    """Two files have changed places, from one row group to another."""
    for first, second in itertools.product(ORDER[:3], ORDER[7:]):
        order = [{first: second, second: first}.get(place, place) for place in ORDER]
        other = checkpoint(order)
        if layout(other) == layout(ONE):
            return other
    raise AssertionError("no two can change places unseen")


@pytest.mark.parametrize("other", [of_another_layout, of_the_same_layout])
@pytest.mark.parametrize("cleaned", deep_but_for([False, True], True))
def test_a_reader_outlives_another_writer_of_the_checkpoint(
    other: Callable[[], bytes], cleaned: bool
) -> None:
    content = other()
    assert content != ONE
    files: Files = {**commits(HISTORY), CHECKPOINT: ONE}
    if cleaned:
        del files[commit_file(0)]
    for nth in itertools.count(1):
        with MemoryTable(files) as table, warnings.catch_warnings():
            warnings.simplefilter("error")
            table.storage.set_modified(CHECKPOINT, 1000)  # the other one is younger
            replace = Fault(
                "**", nth, meanwhile=lambda table=table: table.put({CHECKPOINT: content})
            )
            delta = table.delta()
            delta.__dict__["storage"] = storage = FaultyStorage(table.storage, replace)
            assert state_of(delta.snapshot()) == STATES[1].visible()
            if not storage.met:
                break
    assert nth > 10
