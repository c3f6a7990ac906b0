"""The assets of tables: one URI for all spellings of a location."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset

from airflow_delta.assets import delta_asset
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.version_compat import AirflowFailException

SPELLINGS = [
    ("s3://lake/sales", "s3://lake/sales"),
    ("s3a://lake/sales/", "s3://lake/sales"),
    ("S3N://lake/sales//", "s3://lake/sales"),
    ("s3://lake_prod@lake/sales", "s3://lake/sales"),
    ("s3://lake/Sales/a%20b", "s3://lake/Sales/a%20b"),
    ("gcs://lake/sales", "gs://lake/sales"),
    ("abfs://c@Account.dfs.core.windows.net/t/", "abfss://c@account.dfs.core.windows.net/t"),
    ("az://container/t", "abfss://container/t"),
    ("/data//sales/", "file:///data/sales"),
    ("file:/data/sales", "file:///data/sales"),
    ("file://localhost/data/a%20b", "file:///data/a%20b"),
    ("/data/a b#1?", "file:///data/a%20b%231%3F"),
    ("memory://lake/sales", "memory://lake/sales"),
    ("sales", "sales"),
]


@pytest.mark.parametrize(("given", "canonical"), SPELLINGS)
def test_a_location_has_one_spelling(given: str, canonical: str) -> None:
    assert canonical_uri(given) == canonical
    assert canonical_uri(canonical) == canonical


@pytest.mark.parametrize(("given", "canonical"), SPELLINGS[:-1])
def test_the_asset_of_a_table_has_its_canonical_uri(given: str, canonical: str) -> None:
    asset = delta_asset(given)
    assert isinstance(asset, Asset)
    assert (asset.name, asset.group, asset.extra, asset.watchers) == (canonical, "delta", {}, [])
    # Airflow changes URIs too, and what it makes of this one still means the table.
    assert canonical_uri(asset.uri) == canonical


def test_an_asset_has_the_name_and_the_table_id_that_it_is_given() -> None:
    asset = delta_asset("s3://lake/t", name="t", group="sales", table_id="1-2", extra={"a": 1})
    assert (asset.name, asset.group) == ("t", "sales")
    assert asset.extra == {"a": 1, "table_id": "1-2"}


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sales", "uri: expected an absolute path"),
        (None, "uri: expected a path or a URI"),
        ("s3://key:secret@lake/sales", "has a password"),
        ("s3://lake/sales?sig=secret", "the location s3://lake/sales has a query"),
        ("s3://lake/what?/sales", "has a '[?]' or a '#'"),
        ("s3://lake/sales#1", "has a '[?]' or a '#'"),
    ],
)
def test_a_location_that_is_none_is_refused(uri: str, reason: str) -> None:
    with pytest.raises((AirflowFailException, ValueError), match=reason) as refused:
        delta_asset(uri)
    assert "secret" not in str(refused.value)
