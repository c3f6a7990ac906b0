"""The description of this provider package for Airflow, which finds it by an entry point.

Airflow calls `get_provider_info` in every process that discovers providers, so it returns a literal
and imports nothing. The keys are those of Airflow's ``provider_info.schema.json``;
``package-name`` must equal the name of the distribution, or discovery fails for all providers.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]

_INTEGRATION = "Delta Lake"


def get_provider_info() -> dict[str, Any]:
    """The provider's description: its modules, its connection type and how to show it."""
    return {
        "package-name": "airflow-delta",
        "name": "Delta Lake",
        "description": "Maintain Delta Lake tables and work with pinned versions of them.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://delta.io/",
                "tags": ["software"],
            }
        ],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta.hooks.commit_owner",
                    "airflow_delta.hooks.delta",
                    "airflow_delta.hooks.spark.job",
                ],
            }
        ],
        "operators": [{"integration-name": _INTEGRATION, "python-modules": _operators()}],
        "sensors": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta.sensors.backfill",
                    "airflow_delta.sensors.table_version",
                    "airflow_delta.sensors.truncation",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta.triggers.backfill",
                    "airflow_delta.triggers.new_versions",
                    "airflow_delta.triggers.table_version",
                    "airflow_delta.triggers.truncation",
                ],
            }
        ],
        "cli": ["airflow_delta.airflow_command.get_delta_commands"],
        # The assets by which hooks report tables. Airflow wants the key of the handler, also for none.
        "asset-uris": [
            {
                "schemes": ["delta+file", "delta+s3", "delta+gs", "delta+abfss", "delta+hdfs"],
                "handler": None,
                "to_openlineage_converter": "airflow_delta.hooks.lineage.asset_uris.convert_asset",
            }
        ],
        "connection-types": [_store_connection(), _commit_owner_connection()],
    }


def _operators() -> list[str]:
    """The modules with operators."""
    return [
        "airflow_delta.operators.backfill",
        "airflow_delta.operators.change_feed",
        "airflow_delta.operators.checkpoint",
        "airflow_delta.operators.commit_ownership",
        "airflow_delta.operators.convert",
        "airflow_delta.operators.delete",
        "airflow_delta.operators.drop_feature",
        "airflow_delta.operators.log_compaction",
        "airflow_delta.operators.merge",
        "airflow_delta.operators.metadata_cleanup",
        "airflow_delta.operators.optimize",
        "airflow_delta.operators.restore",
        "airflow_delta.operators.row_rules",
        "airflow_delta.operators.row_tracking",
        "airflow_delta.operators.table_profile",
        "airflow_delta.operators.time_travel_snapshot",
        "airflow_delta.operators.update",
        "airflow_delta.operators.vacuum",
        "airflow_delta.operators.write",
    ]


def _store_connection() -> dict[str, Any]:
    """The connection type with the credentials of a store."""
    return {
        "connection-type": "delta",
        "hook-class-name": "airflow_delta.hooks.delta.DeltaHook",
        "hook-name": "Delta Lake",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "schema", "login", "password"],
            "relabeling": {"extra": "Storage options (JSON)"},
            "placeholders": {"extra": '{"aws_access_key_id": "…", "aws_secret_access_key": "…"}'},
        },
    }


def _commit_owner_connection() -> dict[str, Any]:
    """The connection type of the database of the SQL commit owner."""
    return {
        "connection-type": "delta_commit_owner",
        "hook-class-name": "airflow_delta.hooks.commit_owner.CommitOwnerHook",
        "hook-name": "Delta Lake commit owner (SQL)",
        "ui-field-behaviour": {
            "hidden-fields": [],
            "relabeling": {
                "host": "PostgreSQL host",
                "schema": "Database",
                "extra": "Parameters of the driver (JSON)",
            },
            "placeholders": {
                "host": "empty for SQLite",
                "port": "5432",
                "path": "/data/commit_owner.db",
                "extra": '{"sslmode": "verify-full"}',
            },
        },
        "conn-fields": {
            "path": {
                "label": "SQLite file, instead of a host",
                "schema": {"type": ["string", "null"]},
            }
        },
    }
