"""Convert the engine's storage options to properties of Hadoop's connectors.

The engine and Spark use different clients for the same store. A job gets its storage options in the
environment, and sets the properties in its driver; Spark sends them to executors with its jobs. So
secrets are never on a command line or in Spark's own configuration, which others can see.

====================  ============================================================================
``s3://``, ``s3a://`` keys and session token, unsigned requests, region, endpoint and its style
``abfss://``          account key, client secret, or shared access signature (Hadoop 3.4.1 or newer)
``gs://``             the path of a service account file, which must be there on each machine
====================  ============================================================================

For other credentials (roles, managed identities, the content of a key file) and for the connectors'
jars, configure Spark. ``spark.hadoop.<property>`` in Spark's configuration has precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.engine.storage.store_arguments import CONTAINER, read_location, read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure_hadoop", "hadoop_settings"]

_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_CLIENT_CREDENTIALS = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
_AUTHORITY = "https://login.microsoftonline.com"


def hadoop_settings(uri: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    """Convert storage options to Hadoop properties for a location.

    Args:
        uri: a table's location.
        storage_options: the options with which the engine opens it.

    Returns:
        The properties by name, without ``spark.hadoop.``; empty for other stores than those of the module.
        The values contain secrets.

    Raises:
        InvalidArgumentError: the location is malformed, or an option is unknown.
    """
    match uri.partition("://")[0].lower():
        case "s3" | "s3a":
            return _s3(storage_options)
        case "abfs" | "abfss":
            return _azure(uri, storage_options)
        case "gs" | "gcs":
            return _google(storage_options)
        case _:
            return {}


def configure_hadoop(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set Hadoop properties for all later reads and writes of a session.

    A property that Spark's configuration sets as ``spark.hadoop.<property>`` isn't changed. Spark's user
    interface and event log show Hadoop's properties as they are when a session starts, and when a file or
    jar is added, which jobs never do.
    """
    context = spark.sparkContext
    given = context.getConf()
    # PySpark has no public API for the properties of a running session.
    properties = context._jsc.hadoopConfiguration()  # noqa: SLF001
    for name, value in settings.items():
        if not given.contains(f"spark.hadoop.{name}"):
            properties.set(name, value)


def _s3(storage_options: Mapping[str, str]) -> dict[str, str]:
    from airflow_delta.engine.storage.s3 import S3_OPTIONS

    given = read_options(storage_options, S3_OPTIONS, kind="S3").store
    settings: dict[str, str] = {}
    if given.get("skip_signature") == "true":
        settings["fs.s3a.aws.credentials.provider"] = _ANONYMOUS
    elif "access_key_id" in given:
        settings["fs.s3a.access.key"] = given["access_key_id"]
        settings["fs.s3a.secret.key"] = given.get("secret_access_key", "")
        # Empty instead of missing: otherwise Spark takes a token of another identity from the environment.
        settings["fs.s3a.session.token"] = given.get("session_token", "")
    if "region" in given:
        settings["fs.s3a.endpoint.region"] = given["region"]
    if "endpoint" in given:
        settings["fs.s3a.endpoint"] = given["endpoint"]
        # By default the engine's client has the bucket in the path.
        in_host = given.get("virtual_hosted_style_request") == "true"
        settings["fs.s3a.path.style.access"] = "false" if in_host else "true"
    return settings


def _azure(uri: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    from airflow_delta.engine.storage.azure import AZURE_OPTIONS

    given = read_options(storage_options, AZURE_OPTIONS, kind="Azure").store
    # Hadoop identifies accounts by host. Without a host in the location it finds no account.
    _, _, host = read_location(uri, CONTAINER).container.partition("@")
    settings: dict[str, str] = {}
    # The first kind of credentials that is given, in the order of the engine's client.
    if "account_key" in given:
        settings = {"account.auth.type": "SharedKey", "account.key": given["account_key"]}
    elif {"client_id", "client_secret", "tenant_id"} <= given.keys():
        authority = given.get("authority_host", _AUTHORITY).rstrip("/")
        settings = {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": _CLIENT_CREDENTIALS,
            "account.oauth2.client.id": given["client_id"],
            "account.oauth2.client.secret": given["client_secret"],
            "account.oauth2.client.endpoint": f"{authority}/{given['tenant_id']}/oauth2/token",
        }
    elif "sas_key" in given:
        token = given["sas_key"].removeprefix("?")
        settings = {"account.auth.type": "SAS", "sas.fixed.token": token}
    return {f"fs.azure.{name}.{host}": value for name, value in settings.items()}


def _google(storage_options: Mapping[str, str]) -> dict[str, str]:
    from airflow_delta.engine.storage.gcs import GCS_OPTIONS

    given = read_options(storage_options, GCS_OPTIONS, kind="GCS").store
    if "service_account" not in given:
        return {}
    return {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": given["service_account"],
    }
