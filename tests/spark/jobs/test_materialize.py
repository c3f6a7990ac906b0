from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import airflow_delta
from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.hooks.spark.job import _zip_package
from airflow_delta.spark.jobs.materialize import copy_request
from tests.spark.conftest import SETTINGS

PACKAGE = Path(airflow_delta.__file__).parent
GIVEN = {"table_uri": "/t", "version": 7, "target_uri": "/c"}


def test_parameters_make_a_request() -> None:
    assert copy_request(GIVEN) == CopyRequest("/t", 7, "/c", "parquet")
    more = {"format": "delta", "app_id": "a", "app_version": 1, "replace_newer": True}
    more["expire_after_ms"] = 5
    assert copy_request({**GIVEN, **more}) == CopyRequest(
        "/t", 7, "/c", "delta", txn=("a", 1), replace_newer=True, expire_after_ms=5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "7"}, "'version': expected int, found '7'"),
        ({"version": True}, "'version': expected int, found True"),
        ({"colour": "red"}, r"unknown \['colour'\]"),
        ({"expire_after_ms": 10**15}, "expire_after_ms: expected 0 to 31536000000000, found 1000"),
        ({"expire_after_ms": -1}, "expire_after_ms: expected 0 to 31536000000000, found -1"),
        ({"app_id": "a"}, "app_id and app_version belong together"),
        ({"format": "orc"}, "unknown format 'orc' of a copy: expected one of parquet, delta, csv"),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        copy_request({**GIVEN, **change})


def test_missing_parameters_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"missing \['target_uri', 'version'\]"):
        copy_request({"table_uri": "/t"})


@pytest.mark.deep
def test_the_job_runs_as_spark_submit_starts_it(tmp_path: Path) -> None:
    """From a zip of the package, as a submission ships it; not from this checkout."""
    table, target, result = tmp_path / "table", tmp_path / "copy", tmp_path / "result.json"
    write_deltalake(table, pa.table({"id": [1, 2, 3], "p": ["x", "x", None]}), partition_by=["p"])
    shipped = _zip_package(tmp_path / "airflow_delta.zip")
    parameters = {
        "table_uri": str(table),
        "version": 0,
        "target_uri": str(target),
        "result_path": str(result),
    }
    (tmp_path / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
    settings = [part for item in SETTINGS.items() for part in ("--conf", "=".join(item))]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[1]", *settings, "--py-files", str(shipped)),
            str(PACKAGE / "spark" / "jobs" / "materialize.py"),
            str(tmp_path / "parameters.json"),
        ],
        cwd=tmp_path,
        env={**os.environ, **python},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {"table_uri": str(table), "version": 0, "target_uri": str(target), "num_rows": 3}
    report = json.loads(result.read_text())
    assert report.pop("num_files") == len(list(target.glob("part-*.parquet")))
    assert report == expected
    rows = [
        row for file in target.glob("part-*") for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(row["id"] for row in rows) == [1, 2, 3]
