"""Z-order and clustering beside Delta Spark: as few files for a query; either goes on after the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.optimize import sorted_writer
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.row_tables import bag

pytestmark = pytest.mark.deep

ROWS = 20_000
FILES = 64
"""About so many files. Of few files each is a large part of the curve; where Delta Spark's random sample
cuts it then decides about a tenth of the files that a query reads."""
COLUMNS = ("a", "b", "c")
CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"
DEFAULTS = {
    "spark.databricks.delta.optimize.maxFileSize": str(1 << 30),
    f"{CUBE}.threshold": str(100 << 30),
    f"{CUBE}.targetCubeSize": str(150 << 30),
}
Sql = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def sql(delta_spark: DeltaSpark) -> Iterator[Sql]:
    """Runs a statement with settings, which end with the test."""

    def run(statement: str, **options: Any) -> list[dict[str, Any]]:
        try:
            return delta_spark.sql(statement, **options)
        except DeltaSparkError as error:
            # The statement is done, but Arrow can't hold its report.
            if "nulls in input cannot be viewed" not in str(error):
                raise
            return []

    yield run
    delta_spark.sql("SELECT 1", settings=DEFAULTS)


def name_of(root: Path) -> str:
    return f"delta.`{root}`"


def make_rows(path: Path) -> Path:
    """Rows of three columns, independent of each other: a skewed integer, a float, and a text."""
    chance = np.random.default_rng(5)
    values = (chance.random(ROWS) ** 3 * 1e9).astype(np.int64)
    texts = [f"user-{int(n):07}" for n in chance.integers(0, 5_000_000, ROWS)]
    rows = {"a": values, "b": chance.standard_normal(ROWS), "c": texts, "n": np.arange(ROWS)}
    pq.write_table(pa.table(rows), path / "rows.parquet", row_group_size=ROWS // 4)
    return path / "rows.parquet"


def bounds_of(root: Path) -> tuple[int, dict[str, list[tuple[Any, Any]]]]:
    """The number of files of a table, and the least and greatest value of each column in each file."""
    stats = [
        json.loads(text) for text in DeltaTable(str(root)).snapshot().files()["stats"].to_pylist()
    ]
    return len(stats), {
        name: [(each["minValues"][name], each["maxValues"][name]) for each in stats]
        for name in COLUMNS
    }


def files_read(root: Path, rows: pa.Table, share: float) -> dict[str, float]:
    """How many files ranges with a share of the rows read, by column, on average."""
    _, bounds = bounds_of(root)
    chance = np.random.default_rng(1)
    found = {}
    for name in COLUMNS:
        values = sorted(rows[name].to_pylist())
        starts = chance.integers(0, int(ROWS * (1 - share)), 100)
        counts = [
            sum(
                low <= values[s + int(ROWS * share)] and high >= values[s]
                for low, high in bounds[name]
            )
            for s in starts.tolist()
        ]
        found[name] = float(np.mean(counts))
    return found


@pytest.mark.parametrize(
    ("columns", "is_clustered"), [(("a", "c"), False), (("b",), False), (("a", "b", "c"), True)]
)
def test_queries_read_as_few_files_as_in_the_layout_of_delta_spark(
    sql: Sql,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: tuple[str, ...],
    *,
    is_clustered: bool,
) -> None:
    source = make_rows(tmp_path)
    by = ", ".join(columns)
    roots = [tmp_path / "ours", tmp_path / "theirs"]
    for root in roots:
        layout = f"CLUSTER BY ({by})" if is_clustered else ""
        schema = "a BIGINT, b DOUBLE, c STRING, n BIGINT"
        sql(f"CREATE TABLE {name_of(root)} ({schema}) USING delta {layout}")
        sql(f"INSERT INTO {name_of(root)} SELECT * FROM parquet.`{source}`")
    size = DeltaTable(str(roots[1])).snapshot().size_in_bytes
    z_order = "" if is_clustered else f"ZORDER BY ({by})"
    most = {"spark.databricks.delta.optimize.maxFileSize": str(size // FILES)}
    sql(f"OPTIMIZE {name_of(roots[1])} {z_order}", settings=most)
    num_files, _ = bounds_of(roots[1])
    assert num_files > 0.8 * FILES
    monkeypatch.setattr(sorted_writer, "count_files", lambda *_: num_files)
    DeltaTable(str(roots[0])).optimize(z_order_by=() if is_clustered else columns)
    assert bounds_of(roots[0])[0] == num_files
    rows = pq.read_table(source)
    for share in (0.01, 0.1):
        ours, theirs = (files_read(root, rows, share) for root in roots)
        for name in columns:
            assert ours[name] <= 1.1 * theirs[name], (name, share, ours, theirs)
    assert sql(f"SELECT sum(n), count(*) FROM {name_of(roots[0])}") == sql(
        f"SELECT sum(n), count(*) FROM {name_of(roots[1])}"
    )


def test_either_goes_on_clustering_after_the_other(sql: Sql, tmp_path: Path) -> None:
    root = tmp_path / "t"
    name = name_of(root)
    told = {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.columnMapping.mode": "name",
    }
    properties = ", ".join(f"'{key}'='{value}'" for key, value in told.items())
    sql(
        f"CREATE TABLE {name} (id BIGINT, s STRUCT<`x y`: STRING>, v DOUBLE) USING delta "
        f"CLUSTER BY (id, s.`x y`) TBLPROPERTIES ({properties})"
    )

    def insert(first: int) -> None:
        sql(
            f"INSERT INTO {name} SELECT id, named_struct('x y', concat('t', id % 7)), id / 3 "
            f"FROM range({first}, {first + 50}, 1, 1)"
        )

    def cubes() -> Counter[Any]:
        """How many files each cube has; None for those that aren't clustered."""
        adds = DeltaTable(str(root)).snapshot().files().to_pylist()
        assert all((add["clusteringProvider"] == "liquid") == bool(add["tags"]) for add in adds)
        tags = [dict(add["tags"] or ()) for add in adds]
        assert {each.get("ZCUBE_ZORDER_BY") for each in tags} <= {None, '["id","s.`x y`"]'}
        return Counter(each.get("ZCUBE_ID") for each in tags)

    def rows() -> Any:
        ids = "_metadata.row_id AS _row_id, _metadata.row_commit_version AS _row_commit_version"
        return bag(sql(f"SELECT *, {ids} FROM {name}"))

    table = DeltaTable(str(root))
    # The peer, then we.
    insert(0)
    sql(f"OPTIMIZE {name}")
    (first,) = cubes()
    assert first is not None
    assert table.optimize().num_commits == 0
    insert(50)
    sql(f"DELETE FROM {name} WHERE id IN (3, 60)")
    before = rows()
    assert table.optimize().num_removed == 2
    (second,) = cubes()
    assert second not in (None, first)
    assert rows() == before
    # The peer finds nothing to do, then new rows.
    version = table.latest_version()
    sql(f"OPTIMIZE {name}")
    assert table.latest_version() == version
    insert(100)
    before = rows()
    sql(f"OPTIMIZE {name}")
    (third,) = cubes()
    assert third not in (None, second)
    assert rows() == before
    assert table.optimize().num_commits == 0
    # Cubes of one byte are full, whoever made them.
    insert(150)
    table.optimize(min_cube_size=1)
    assert len(cubes()) == 2
    assert third in cubes()
    insert(200)
    kept = set(cubes())
    settings = {f"{CUBE}.threshold": "1", f"{CUBE}.targetCubeSize": "1"}
    sql(f"OPTIMIZE {name}", settings=settings)
    assert len(cubes()) == 3
    assert kept - {None} < set(cubes())
    before = rows()
    assert table.optimize(full=True).num_removed == 3
    assert len(cubes()) == 1
    assert rows() == before
    # A file that is rewritten alone stays in its cube.
    sql(f"DELETE FROM {name} WHERE id < 100 AND id % 2 = 0")
    stays = cubes()
    assert table.optimize(purge=True).num_added == 1
    assert cubes() == stays
    version = table.latest_version()
    sql(f"OPTIMIZE {name}", settings=DEFAULTS)
    assert table.latest_version() == version
