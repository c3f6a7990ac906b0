"""The engine behind the interface that ``check_golden.py`` speaks: one opened version of a table."""

from __future__ import annotations

from typing import Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import VersionNotFoundError

COLUMNS = ("path", "size", "stats", "deletionVector")


class OpenedTable:
    """One snapshot, told in plain Python values."""

    def __init__(self, path: str, version: int | None, timestamp: int | None) -> None:
        self._snapshot = DeltaTable(path).snapshot(version=version, timestamp=timestamp)
        self._files = self._snapshot.files(columns=COLUMNS)

    @property
    def version(self) -> int:
        return self._snapshot.version

    def files(self) -> list[dict[str, Any]]:
        rows = self._files.select(["path", "size", "deletionVector"]).to_pylist()
        return [
            {"path": row["path"], "size": row["size"], **_deletion_vector(row["deletionVector"])}
            for row in rows
        ]

    @property
    def protocol(self) -> dict[str, Any]:
        return self._snapshot.protocol.to_json()

    @property
    def schema_field_names(self) -> list[str]:
        return [field.name for field in self._snapshot.schema.fields]

    @property
    def partition_columns(self) -> list[str]:
        return list(self._snapshot.metadata.partition_columns)

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self._snapshot.metadata.configuration)

    @property
    def table_id(self) -> str:
        return self._snapshot.metadata.id

    @property
    def txns(self) -> dict[str, int]:
        return {app: txn.version for app, txn in self._snapshot.transactions.items()}

    @property
    def domains(self) -> dict[str, str]:
        return {name: d.configuration for name, d in self._snapshot.domains.items()}

    @property
    def num_tombstones(self) -> int:
        # The corpus counts every remove of the log, however old.
        return self._snapshot.tombstones(include_expired=True).num_rows

    @property
    def num_rows(self) -> int | None:
        return self._snapshot.num_rows

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._snapshot.to_arrow().to_pylist()
        return rows

    @property
    def commit_timestamp(self) -> int | None:
        try:
            return self._snapshot.timestamp_ms
        except VersionNotFoundError:
            # The commit's file has been cleaned up, and with it its time.
            return None


def _deletion_vector(value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {"dv_id": None, "dv_cardinality": 0}
    offset = value["offset"]
    suffix = "" if offset is None else f"@{offset}"
    return {
        "dv_id": value["storageType"] + value["pathOrInlineDv"] + suffix,
        "dv_cardinality": value["cardinality"],
    }


def open_table(path: str, version: int | None = None, timestamp: int | None = None) -> OpenedTable:
    """Open a table at a version or timestamp; raises the engine's errors."""
    return OpenedTable(path, version, timestamp)
