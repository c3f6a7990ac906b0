"""Damage of any kind: the rows are those that pyarrow reads, or the file is refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_delta.engine.checkpoint.write import write_classic_checkpoint
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.thrift import ThriftStruct
from tests.engine.checkpoint.contents import content, memory
from tests.engine.parquet.files import by_pyarrow, here, many_rows, stored, with_footer


def without_histograms(footer: ThriftStruct) -> None:
    """Take from a footer the histograms of levels: pyarrow ends the process over damaged ones."""
    for group in footer.fields[4][1].items:
        for chunk in group.fields[1][1].items:
            chunk.fields[3][1].fields.pop(16, None)


def our_checkpoint() -> bytes:
    storage = memory()
    return storage.read(write_classic_checkpoint(storage, content(), version=7, table="t").path)


def their_checkpoint(table: Path) -> bytes:
    DeltaTable(str(table)).create_checkpoint()
    (path,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    return path.read_bytes()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The file cut off, or with a bit or a byte changed, as often in the footer as elsewhere."""
    if chance.random() < 0.1:
        return data[: chance.randrange(len(data))]
    footer = int.from_bytes(data[-8:-4], "little") + 8
    first = len(data) - footer if chance.random() < 0.5 else 0
    bad = bytearray(data)
    bad[chance.randrange(first, len(data))] ^= (
        1 << chance.randrange(8) if chance.random() < 0.7 else chance.randrange(1, 256)
    )
    return bytes(bad)


@pytest.mark.parametrize("origin", ["ours", "theirs", "snappy"])
def test_damage_is_refused_or_makes_no_difference(origin: str, sales_copy: Path) -> None:
    if origin == "ours":
        data = our_checkpoint()
    elif origin == "theirs":
        data = their_checkpoint(sales_copy)
    else:
        data = stored(many_rows(), compression="snappy", row_group_size=30)
    data = with_footer(data, without_histograms)
    good = here(data)
    assert good == by_pyarrow(data)
    chance, outcomes = random.Random(20), Counter[str]()
    for _ in range(170):
        bad = damaged(data, chance)
        try:
            found = here(bad)
        except PyarrowFallback:
            outcomes["refused"] += 1
            continue
        try:
            expected = by_pyarrow(bad)
        except CorruptLogError:
            # It minds something about columns that aren't looked at here.
            expected = good
        assert found == expected
        outcomes["read"] += 1
    assert min(outcomes["refused"], outcomes["read"]) > 20
