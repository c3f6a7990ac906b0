"""The jobs on a cluster: what they make, as others read it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.spark.writer.log_actions import live_files, removal
from tests.airflow.maintenance import rows_by_peer
from tests.cluster.conftest import BOTH_EXECUTORS
from tests.cluster.standalone import Cluster
from tests.engine.changes.logs import inline_vector

Run = Callable[..., dict[str, Any]]


def ids(table: Path, **columns: Any) -> list[Any]:
    """The ids of a table's rows, as deltalake reads them."""
    return sorted(row["id"] for row in rows_by_peer(table, **columns))


def test_executors_have_no_installation_of_the_package(
    python_of_executors: Path, tmp_path: Path
) -> None:
    code = "import pyarrow, pyroaring, airflow_delta"
    found = subprocess.run(
        [str(python_of_executors), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "No module named 'airflow_delta'" in found.stderr


@pytest.mark.deep
def test_a_copy_as_a_table(run: Run, sales: Path, tmp_path: Path, cluster: Cluster) -> None:
    target = tmp_path / "copy"
    told = run(
        "materialize",
        conf=BOTH_EXECUTORS,
        table_uri=str(sales),
        version=2,
        target_uri=str(target),
        format="delta",
    )
    assert (told["num_rows"], told["committed_version"]) == (30, 0)
    assert ids(target) == list(range(30))
    application = cluster.applications()[-1]
    assert len({file.parents[2] for file in cluster.executor_files(application)}) == 2


@pytest.mark.deep
def test_a_change_feed(run: Run, tmp_path: Path) -> None:
    table, target = str(tmp_path / "table"), tmp_path / "changes"
    on = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(table, pa.table({"id": [1, 2, 3]}), configuration=on)
    Peer(table).update({"id": "7"}, predicate="id = 1")
    Peer(table).delete("id = 2")
    told = run("change_feed", table_uri=table, start=0, end=2, target_uri=str(target))
    assert told["appended"]
    wanted = pa.table(Peer(table).load_cdf(starting_version=0, ending_version=2).read_all())
    names = ("id", "_change_type", "_commit_version")
    keys = [tuple(row[name] for name in names) for row in wanted.to_pylist()]
    assert sorted(tuple(row[n] for n in names) for row in rows_by_peer(target)) == sorted(keys)
    assert len(keys) == 6


@pytest.mark.deep
def test_a_vacuum(run: Run, sales_copy: Path) -> None:
    orphans = [sales_copy / name for name in ("a.parquet", "sub/b.parquet")]
    for orphan in orphans:
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"?")
        os.utime(orphan, (0, 0))
    young = sales_copy / "c.parquet"
    young.write_bytes(b"?")
    told = run("vacuum", table_uri=str(sales_copy), dry_run=False)
    assert told["num_deleted"] == 2
    assert [path for path in (*orphans, young) if path.exists()] == [young]
    assert ids(sales_copy) == list(range(5, 30))


@pytest.mark.deep
def test_a_feature_is_rewritten_out_of_the_files(run: Run, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"id": pa.array(range(6), pa.int64())}))
    table = DeltaTable(root)
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    transaction = table.transaction("DELETE")
    (file,) = live_files(transaction.base.files())
    vector = DeletionVectorDescriptor.from_json(inline_vector([1, 4]) or {}, "test")
    transaction.remove_file(removal(file, data_change=True))
    transaction.add_file(replace(file, deletion_vector=vector, data_change=True))
    transaction.commit()
    told = run("rewrite", table_uri=root, feature="deletionVectors")
    assert (told["files_removed"], told["files_added"]) == (1, 1)
    (left,) = live_files(DeltaTable(root).snapshot().files())
    assert left.deletion_vector is None
    assert pa.table(Peer(root).scan().read_all())["id"].sort().to_pylist() == [0, 2, 3, 5]


@pytest.mark.deep
def test_a_profile_where_more_is_known_of_files_than_a_message_holds(
    run: Run, tmp_path: Path
) -> None:
    """Partition values of six megabytes, while a task has to fit into one."""
    root, texts = tmp_path / "t", [f"{number}" * 60_000 for number in range(10, 60)]
    fields = (StructField("id", LONG), StructField("text", STRING))
    table = DeltaTable.create(str(root), StructType(fields), partition_by=["text"])
    transaction = table.transaction("WRITE")
    for number, text in enumerate(texts):
        path = root / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        values = {"text": text}
        transaction.add_file(AddFile(path.name, values, path.stat().st_size, 0, data_change=True))
    transaction.commit()
    small = {"spark.rpc.message.maxSize": "1"}
    told = run("table_profile", conf=small, table_uri=str(root), version=1)
    assert (told["version"], told["num_rows"]) == (1, 50)
    figures = told["columns"]
    assert (figures["id"]["nulls"], figures["text"]["nulls"]) == (0, 0)
    assert (figures["id"]["min"], figures["id"]["max"]) == (0, 49)
    assert (figures["text"]["min"][:8], figures["text"]["max"][:8]) == ("10101010", "59595959")
