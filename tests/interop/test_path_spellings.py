"""Which paths of a log are one file: Delta Spark and we say the same, of the same logs.

Each file of a table has rows of its own number, is added by one spelling of its path, and removed, or added
again, by another one. So the rows that Delta Spark reads say which spellings it takes for one file.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.paths import decode_path
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.log_builder import add, remove, write_table

PAIRS = [
    ("{n}%c3%a9", "{n}%C3%A9"),
    ("{n}%C3%a9", "{n}%c3%A9"),
    ("{n}é", "{n}%C3%A9"),
    ("{n}%20b", "{n}%20b"),
    ("{n}%2Db", "{n}-b"),
    ("./{n}", "{n}"),
    (".//{n}", "{n}"),
    ("x/../{n}", "{n}"),
    ("x//{n}", "x/{n}"),
    ("{n}", "file:ROOT/{n}"),
    ("ROOT/{n}", "{n}"),
    ("file:ROOT/{n}", "file://ROOT/{n}"),
    ("ROOT/{n}", "file:ROOT/{n}"),
    ("file:ROOT/{n}%c3%a9", "file:ROOT/{n}%C3%A9"),
    ("file:ROOT/{n}é", "file:ROOT/{n}%C3%A9"),
    ("file:ROOT/{n}%2Db", "file:ROOT/{n}-b"),
    ("file:ROOT/x//{n}", "file:ROOT/x/{n}"),
    ("ROOT/{n}%c3%a9", "ROOT/{n}%C3%A9"),
    ("ROOT/{n}é", "ROOT/{n}%C3%A9"),
    ("ROOT/{n}é", "file:ROOT/{n}é"),
    ("ROOT/{n}é", "file:ROOT/{n}%C3%A9"),
    ("ROOT/{n}%2Db", "file:ROOT/{n}-b"),
    ("ROOT/{n}%2Db", "file:ROOT/{n}%2Db"),
]


@pytest.mark.parametrize("again", deep_but_for(["removed", "added"], "removed"))
def test_spellings_of_one_file(tmp_path: Path, delta_spark: DeltaSpark, again: str) -> None:
    root = tmp_path / "t"
    spelled = [
        tuple(path.format(n=f"{number:02}").replace("ROOT", str(root)) for path in pair)
        for number, pair in enumerate(PAIRS)
    ]
    (root / "x").mkdir(parents=True)
    sizes = []
    for number, (first, _) in enumerate(spelled):
        file = root / decode_path(first.removeprefix("file:"))
        pq.write_table(pa.table({"id": [number]}), file)
        sizes.append(file.stat().st_size)
    adds = [add(first, size=size) for (first, _), size in zip(spelled, sizes, strict=True)]
    second = [
        remove(path) if again == "removed" else add(path, size=size)
        for (_, path), size in zip(spelled, sizes, strict=True)
    ]
    write_table(root, adds, second)
    theirs = _read(delta_spark, root)
    table = DeltaTable(str(root))
    live = table.snapshot().files(columns=["path"])["path"].to_pylist()
    ours = sorted(int(Path(decode_path(path)).name[:2]) for path in live)
    assert ours == theirs, [PAIRS[n] for n in {*ours, *theirs} if ours.count(n) != theirs.count(n)]
    # What we make of the log for others says the same.
    table.checkpoint()
    assert _read(delta_spark, root) == theirs


def _read(delta_spark: DeltaSpark, root: Path) -> list[int]:
    rows = delta_spark.sql(f"SELECT id FROM delta.`{root}`")
    return sorted(row["id"] for row in rows)
