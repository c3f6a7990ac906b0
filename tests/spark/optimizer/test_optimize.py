"""Tables that Spark optimizes: the same rows and ids, by the plan and with the marks of the engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError, StorageError
from airflow_delta.engine.maintenance.optimize.execution import OptimizeResult
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.spark import delete, optimize, write
from airflow_delta.spark.optimizer import rounds
from tests.engine.maintenance.optimize.files_of_rows import (
    check_statistics,
    data_files,
    delete_in_log,
)
from tests.row_tables import RowTable, bag, random_table
from tests.spark.foreign_files import ROWS, SCHEMA, foreign_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deep = pytest.mark.deep

Z_ORDER: list[Any] = ["id", "text", "price", "at", "day", "d", ("s", "y.z")]

# Few files and rows, but with vectors, narrow types and older columns in all of them.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tracked": {"tracked": True, "partition_by": ("p", "q"), "mode": "name"},
    "by id": {"tracked": True, "mode": "id"},
    "partitioned": {"partition_by": ("q",)},
}
COMPACTIONS = [
    (kind, seed) if (kind, seed) == ("tracked", 1) else pytest.param(kind, seed, marks=deep)
    for kind in KINDS
    for seed in (1, 2)
]


def live_rows(made: RowTable) -> Any:
    is_tracked = "_row_id" in made.rows[0]
    return bag(made.table.snapshot().to_arrow(with_row_tracking=is_tracked).to_pylist())


def definition(made: RowTable) -> Any:
    """What no optimization changes."""
    snapshot = made.table.snapshot()
    return snapshot.protocol, snapshot.metadata, snapshot.domains.keys()


def check_commit(made: RowTable, done: OptimizeResult) -> None:
    """Check the last commit, and the actions of the new files by their rows."""
    commit = made.table.history(1)[0]
    assert commit.operation == "OPTIMIZE"
    metrics = commit.operation_metrics
    assert metrics is not None
    assert int(metrics["numRemovedFiles"]) == done.num_removed
    assert int(metrics["numAddedFiles"]) == done.num_added
    snapshot = made.table.snapshot()
    adds = {add["path"]: add for add in snapshot.files().to_pylist() if "optimize-" in add["path"]}
    assert len(adds) == done.num_added
    for path, add in adds.items():
        assert add["size"] == (made.path / decode_path(path)).stat().st_size
        assert not add["dataChange"]
    check_statistics(snapshot, adds.keys())


@pytest.mark.parametrize(("kind", "seed"), COMPACTIONS)
def test_small_files_are_joined(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    made = random_table(tmp_path / "t", seed, num_files=8, **KINDS[kind])
    before, settings = definition(made), spark.conf.getAll
    done = optimize(spark, str(made.path), max_file_size=1 << 20)
    assert done.num_removed > done.num_added > 0
    assert live_rows(made) == bag(made.rows)
    assert (definition(made), spark.conf.getAll) == (before, settings)
    check_commit(made, done)
    # Either engine finds that nothing is left to do.
    assert made.table.optimize(max_file_size=1 << 20).num_commits == 0
    assert optimize(spark, str(made.path), max_file_size=1 << 20).num_commits == 0


@pytest.mark.parametrize(
    ("kind", "most"),
    [("tracked", 1 << 20), *(pytest.param(kind, 1 << 13, marks=deep) for kind in KINDS)],
)
def test_rows_are_sorted(spark: SparkSession, tmp_path: Path, kind: str, most: int) -> None:
    made = random_table(tmp_path / "t", 3, num_files=8, **KINDS[kind])
    before = definition(made)
    done = optimize(spark, str(made.path), z_order_by=Z_ORDER, max_file_size=most)
    assert done.num_removed == len(done.plan.files) > 0
    assert live_rows(made) == bag(made.rows)
    assert definition(made) == before
    check_commit(made, done)
    for again in (
        made.table.optimize(z_order_by=Z_ORDER, max_file_size=most),
        optimize(spark, str(made.path), z_order_by=Z_ORDER, max_file_size=most),
    ):
        assert again.plan.reason is not None
        assert again.plan.reason.startswith("all files are in Z-order by")


def test_a_purge_keeps_the_order_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 3, num_files=8)
    sizes = {"min_file_size": 1 << 10, "max_file_size": 1 << 13}
    num_added = optimize(spark, str(made.path), z_order_by=Z_ORDER, **sizes).num_added
    assert num_added > 1
    delete(spark, str(made.path), "id % 3 = 0")
    order = made.table.snapshot().to_arrow(columns=["id"])["id"].to_pylist()
    done = optimize(spark, str(made.path), purge=True)
    assert (done.num_removed, done.num_added) == (num_added, num_added)
    assert made.table.snapshot().to_arrow(columns=["id"])["id"].to_pylist() == order
    assert optimize(spark, str(made.path), z_order_by=Z_ORDER, **sizes).num_commits == 0


@deep
def test_clustered_files_are_those_of_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 4, tracked=True, cluster_by=("id", "text"), num_files=6)
    before = definition(made)
    assert optimize(spark, str(made.path)).num_commits == 1
    assert live_rows(made) == bag(made.rows)
    assert definition(made) == before
    adds = made.table.snapshot().files().to_pylist()
    tags = [dict(add["tags"]) for add in adds]
    assert {add["clusteringProvider"] for add in adds} == {"liquid"}
    assert {each["ZCUBE_ZORDER_BY"] for each in tags} == {'["id","text"]'}
    assert len({each["ZCUBE_ID"] for each in tags}) == 1
    assert made.table.optimize().num_commits == 0
    # A file with many deleted rows is rewritten alone, in its order.
    delete(spark, str(made.path), "id % 3 = 0")
    order = made.table.snapshot().to_arrow(columns=["id"])["id"].to_pylist()
    again = optimize(spark, str(made.path))
    assert (again.num_removed, again.num_added) == (1, 1)
    assert made.table.snapshot().to_arrow(columns=["id"])["id"].to_pylist() == order
    assert dict(made.table.snapshot().files()["tags"][0].as_py()) == tags[0]


def many_rows(spark: SparkSession, root: Path, *, num_files: int) -> DeltaTable:
    """A table of files of about 140 KB each."""
    rows = spark.range(num_files * 8_000).select(
        F.expr("cast(hash(id) as bigint)").alias("a"), F.expr("rand(3)").alias("b"), "id"
    )
    write(rows.repartition(num_files), str(root))
    return DeltaTable(str(root))


@deep
@pytest.mark.parametrize("z_order_by", [(), ("a", "b")])
def test_files_have_the_requested_size(
    spark: SparkSession, compiled: None, tmp_path: Path, z_order_by: tuple[str, ...]
) -> None:
    table = many_rows(spark, tmp_path / "t", num_files=40)
    total, most = table.snapshot().size_in_bytes, 1 << 20
    done = optimize(spark, str(tmp_path / "t"), max_file_size=most, z_order_by=z_order_by)
    sizes = sorted(table.snapshot().files()["size"].to_pylist())
    assert len(sizes) == done.num_added >= total * 0.7 // most
    # The last file of a partition may be smaller.
    assert sizes[1] > most // 2
    assert sizes[-1] < most * 1.2
    rows = table.snapshot().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(320_000))


@deep
def test_queries_read_as_few_files_as_after_the_engine(
    spark: SparkSession, compiled: None, tmp_path: Path
) -> None:
    table = many_rows(spark, tmp_path / "spark", num_files=20)
    shutil.copytree(tmp_path / "spark", tmp_path / "local")
    local = DeltaTable(str(tmp_path / "local"))
    options: dict[str, Any] = {"max_file_size": 100 << 10, "z_order_by": ["a", "b"]}
    optimize(spark, str(tmp_path / "spark"), **options)
    local.optimize(**options)
    assert table.snapshot().num_files > 15
    found, expected = share_read(table), share_read(local)
    assert max(expected.values()) < 0.5
    for name in ("a", "b"):
        assert found[name] <= 1.2 * expected[name], (found, expected)


def share_read(table: DeltaTable) -> dict[str, float]:
    """The share of the files that ranges with a hundredth of the values read, by column, on average."""
    texts = table.snapshot().files()["stats"].to_pylist()
    stats = [json.loads(text) for text in texts]
    found = {}
    for name, first, end in (("a", -(2**31), 2**31), ("b", 0, 1)):
        step = (end - first) / 100
        reads = [
            each["minValues"][name] <= first + step * (n + 1)
            and each["maxValues"][name] >= first + step * n
            for n in range(100)
            for each in stats
        ]
        found[name] = sum(reads) / len(reads)
    return found


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have something done after the new files are written, and before they are committed."""
    writing = rounds.SparkRounds.write

    def register(action: Callable[[], Any]) -> None:
        def _write(self: Any, *arguments: Any) -> Any:
            done = writing(self, *arguments)
            action()
            return done

        monkeypatch.setattr(rounds.SparkRounds, "write", _write)

    return register


@deep
def test_a_concurrent_delete_costs_only_its_bin(
    spark: SparkSession, tmp_path: Path, meanwhile: Any
) -> None:
    made = random_table(tmp_path / "t", 7, partition_by=("q",), num_files=9)
    planned = made.table.optimize(max_file_size=1 << 20, dry_run=True).plan
    gone = planned.files["path"][0].as_py()
    lost = [each["path"] for each in planned.files.to_pylist() if each["bin"] == 0]
    left: list[Any] = []

    def remove() -> None:
        transaction = made.table.transaction("DELETE")
        files = transaction.read_files()
        transaction.remove_files(files.filter([path == gone for path in files["path"].to_pylist()]))
        transaction.commit()
        left.append(live_rows(made))

    meanwhile(remove)
    done = optimize(spark, str(made.path), max_file_size=1 << 20)
    assert (done.num_lost, done.num_commits) == (len(lost), 1)
    assert live_rows(made) == left[0]
    live = {decode_path(path) for path in made.table.snapshot().files()["path"].to_pylist()}
    assert live >= set(lost) - {gone}
    assert {path for path in data_files(made.path) if path.startswith("optimize-")} <= live


def test_nothing_is_left_if_a_file_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 8, partition_by=("q",), num_files=4)
    planned = made.table.optimize(dry_run=True).plan
    gone = made.path / decode_path(planned.files["path"][-1].as_py())
    gone.unlink()
    before, version = data_files(made.path), made.table.latest_version()
    with pytest.raises(StorageError, match="Spark failed to write files") as found:
        optimize(spark, str(made.path))
    assert gone.name in str(found.value)
    assert (data_files(made.path), made.table.latest_version()) == (before, version)


def test_wrong_arguments_are_those_of_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 1, num_files=1)
    with pytest.raises(InvalidArgumentError, match="min_file_size=9 is more than"):
        optimize(spark, str(made.path), min_file_size=9, max_file_size=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.parquet.int96TimestampConversion", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.int96RebaseModeInRead", "LEGACY"),
    ],
)
def test_settings_for_reading_change_no_rows(
    spark: SparkSession, tmp_path: Path, name: str, value: str
) -> None:
    table = foreign_files(spark, tmp_path, SCHEMA, ROWS)
    before = table.snapshot().to_arrow().to_pylist()
    spark.conf.set(name, value)
    try:
        assert optimize(spark, str(tmp_path)).num_removed == 2
    finally:
        spark.conf.unset(name)
    assert bag(table.snapshot().to_arrow().to_pylist()) == bag(before)


def test_wrong_statistics_remove_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    vectors = {"delta.enableDeletionVectors": "true"}
    rows = pa.table({"id": [1, 2, 3]})
    foreign_files(spark, tmp_path, "id long", rows, vectors, num_records=2)
    delete_in_log(tmp_path, 2, cardinality=2)
    with pytest.raises(InvalidTableError, match=r"have 2 rows .* and 0 by their statistics"):
        optimize(spark, str(tmp_path), z_order_by=["id"])
    assert DeltaTable(str(tmp_path)).latest_version() == 1


def test_files_without_row_ids_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    table = foreign_files(spark, tmp_path, "id long", pa.table({"id": [1, 2]}), tracked)
    for commit in (tmp_path / "_delta_log").glob("*1.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("baseRowId", None)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(InvalidTableError, match="has no baseRowId"):
        optimize(spark, str(tmp_path))
    assert table.latest_version() == 1
