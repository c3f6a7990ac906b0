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
    """The connection type with the credentials of a store.

    The fields are the storage options that most stores need; all others go into the extras. Each field with
    a secret has the name, of those that the option has, that Airflow hides in its API.
    """
    return {
        "connection-type": "delta",
        "hook-class-name": "airflow_delta.hooks.delta.DeltaHook",
        "hook-name": "Delta Lake",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "schema", "login", "password"],
            "relabeling": {"extra": "Other storage options (JSON)"},
            "placeholders": {
                "test_location": "s3://lake/sales",
                "aws_region": "eu-west-1",
                "aws_endpoint_url": "https://minio.example.com",
                "azure_storage_account_name": "lake",
                "google_service_account": "/secrets/lake.json",
                "single_writer": "true or false",
                "allowed_outside": "s3://shared-lake/",
                "extra": '{"aws_virtual_hosted_style_request": "true"}',
            },
        },
        "conn-fields": {
            "test_location": _field("Location of a table, for the test of the connection"),
            "aws_access_key_id": _field("S3: access key"),
            "aws_secret_access_key": _secret("S3: secret key"),
            "aws_session_token": _secret("S3: session token"),
            "aws_region": _field("S3: region"),
            "aws_endpoint_url": _field("S3: endpoint of a compatible store"),
            "google_service_account": _field(
                "Google Cloud Storage: path of a service account file"
            ),
            "google_service_account_key": _secret("Google Cloud Storage: service account file"),
            "azure_storage_account_name": _field("Azure: account"),
            "azure_storage_access_key": _secret("Azure: account key"),
            "azure_storage_sas_token": _secret("Azure: shared access signature"),
            "azure_tenant_id": _field("Azure: tenant"),
            "azure_client_id": _field("Azure: client"),
            "azure_client_secret": _secret("Azure: client secret"),
            "single_writer": _field("The tables have one writer only"),
            "allowed_outside": _field("Locations outside of the tables that they may read"),
        },
    }


def _field(label: str) -> dict[str, Any]:
    return {"label": label, "schema": {"type": ["string", "null"]}}


def _secret(label: str) -> dict[str, Any]:
    return {"label": label, "schema": {"type": ["string", "null"], "format": "password"}}


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
            "path": _field("SQLite file, instead of a host"),
        },
    }
