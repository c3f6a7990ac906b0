from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.runtime.hadoop_settings import configure_hadoop, hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "lake.dfs.core.windows.net"
ADLS = f"abfss://c@{HOST}/t"
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
CLIENT = {"azure_client_id": "i", "azure_client_secret": "s", "azure_tenant_id": "t"}


@pytest.mark.parametrize(
    ("uri", "options", "settings"),
    [
        ("/data/t", {"aws_access_key_id": "k"}, {}),
        ("memory://x/t", {}, {}),
        ("s3://b/t", {}, {}),
        (
            "s3://b/t",
            {"aws_access_key_id": "k", "AWS_SECRET_ACCESS_KEY": "s", "region": "eu-west-1"},
            {
                "fs.s3a.access.key": "k",
                "fs.s3a.secret.key": "s",
                "fs.s3a.session.token": "",
                "fs.s3a.endpoint.region": "eu-west-1",
            },
        ),
        (
            "S3A://b/t",
            {"key": "k", "secret": "s", "token": "t"},
            {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"},
        ),
        (
            "s3://b/t",
            {"aws_endpoint_url": "http://minio:9000"},
            {"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "true"},
        ),
        (
            "s3://b/t",
            {"endpoint": "https://b.store", "virtual_hosted_style_request": "true"},
            {"fs.s3a.endpoint": "https://b.store", "fs.s3a.path.style.access": "false"},
        ),
        (
            "s3://b/t",
            {"anon": "true"},
            {
                "fs.s3a.aws.credentials.provider": (
                    "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
                )
            },
        ),
        (
            ADLS,
            {"azure_storage_account_key": "a2V5"},
            {
                f"fs.azure.account.auth.type.{HOST}": "SharedKey",
                f"fs.azure.account.key.{HOST}": "a2V5",
            },
        ),
        (
            ADLS,
            {"sas_token": "?sv=1&sig=x"},
            {
                f"fs.azure.account.auth.type.{HOST}": "SAS",
                f"fs.azure.sas.fixed.token.{HOST}": "sv=1&sig=x",
            },
        ),
        (
            ADLS,
            CLIENT,
            {
                f"fs.azure.account.auth.type.{HOST}": "OAuth",
                f"fs.azure.account.oauth.provider.type.{HOST}": OAUTH,
                f"fs.azure.account.oauth2.client.id.{HOST}": "i",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "s",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": (
                    "https://login.microsoftonline.com/t/oauth2/token"
                ),
            },
        ),
        (ADLS, {"azure_use_azure_cli": "true"}, {}),
        (
            "gs://b/t",
            {"google_service_account": "/keys/lake.json"},
            {
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/keys/lake.json",
            },
        ),
    ],
)
def test_storage_options_as_hadoop_properties(
    uri: str, options: dict[str, str], settings: dict[str, str]
) -> None:
    assert hadoop_settings(uri, options) == settings


def test_an_unknown_option_is_refused_without_its_value() -> None:
    with pytest.raises(
        InvalidArgumentError, match="unknown storage option 'aws_acces_key'"
    ) as error:
        hadoop_settings("s3://b/t", {"aws_acces_key": "s3cr3t"})
    assert "s3cr3t" not in str(error.value)


def test_sparks_own_configuration_wins_and_shows_no_secret(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = spark.sparkContext.getConf().set("spark.hadoop.fs.s3a.endpoint", "http://theirs")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda _: given)
    properties = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        configure_hadoop(spark, {"fs.s3a.access.key": "s3cr3t", "fs.s3a.endpoint": "http://ours"})
        assert properties.get("fs.s3a.access.key") == "s3cr3t"
        assert properties.get("fs.s3a.endpoint") != "http://ours"
        # What reads and writes of the session work with.
        used = spark._jsparkSession.sessionState().newHadoopConf()
        assert used.get("fs.s3a.access.key") == "s3cr3t"
        assert "s3cr3t" not in str(spark.sparkContext.getConf().getAll())
        # What the user interface and the event log show.
        shown = spark.sparkContext._jsc.sc().statusStore().environmentInfo().hadoopProperties()
        names = [shown.apply(number)._1() for number in range(shown.size())]
        assert "fs.s3a.impl" in names
        assert "fs.s3a.access.key" not in names
    finally:
        properties.unset("fs.s3a.access.key")
