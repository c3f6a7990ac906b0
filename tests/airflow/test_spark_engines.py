"""What is handed to the Spark jobs of vacuums and rewrites, and what comes of their reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable, StructField, StructType
from airflow_delta.engine.model.schema import INTEGER
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.spark.maintenance import SparkMaintenance


class Job:
    """Takes a submission, and reports its parameters."""

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        self.environment = environment
        return {"job": job, "parameters": parameters}


def made(tmp_path: Path) -> str:
    DeltaTable.create(str(tmp_path / "t"), StructType((StructField("id", INTEGER),)))
    return str(tmp_path / "t")


def test_a_vacuum(tmp_path: Path) -> None:
    uri, job = made(tmp_path), Job()
    told = SparkMaintenance(DeltaHook(), job).vacuum(uri, retention_hours=200, dry_run=True)  # type: ignore[arg-type]
    assert told.pop("duration_ms") >= 0
    assert told == {
        "table_uri": uri,
        "job": "vacuum",
        "parameters": {
            "table_uri": uri,
            "retention_hours": 200.0,
            "enforce_retention": True,
            "dry_run": True,
        },
        "dry_run": True,
    }
    assert job.environment == {"storage_options": {}, "commit_owner_url": None}


def test_a_vacuum_by_an_inventory(tmp_path: Path) -> None:
    uri = made(tmp_path)
    told = SparkMaintenance(DeltaHook(), Job()).vacuum(uri, inventory="/i", enforce_retention=False)  # type: ignore[arg-type]
    assert told["parameters"] == {
        "table_uri": uri,
        "inventory": "/i",
        "enforce_retention": False,
        "dry_run": False,
    }


def test_a_rewrite(tmp_path: Path) -> None:
    uri = made(tmp_path)
    told = SparkMaintenance(DeltaHook(), Job()).rewrite(uri, feature="columnMapping")  # type: ignore[arg-type]
    parameters = {"table_uri": uri, "feature": "columnMapping"}
    assert told == {"table_uri": uri, "job": "rewrite", "parameters": parameters}


def test_a_rewrite_is_told_what_the_table_may_read_outside(tmp_path: Path) -> None:
    uri = made(tmp_path)
    hook = DeltaHook(allowed_outside="/data/a,/data/b")
    told = SparkMaintenance(hook, Job()).rewrite(uri, feature="columnMapping")  # type: ignore[arg-type]
    assert told["parameters"]["allowed_outside"] == ["/data/a", "/data/b"]
