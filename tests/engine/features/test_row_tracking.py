from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features import row_tracking
from airflow_delta.engine.features.row_tracking import (
    check_materialized_columns,
    high_water_mark,
    high_water_mark_domain,
)
from airflow_delta.engine.model.actions import DomainMetadata
from airflow_delta.engine.model.properties import TableProperties

NAMED = {
    row_tracking.MATERIALIZED_ROW_ID_COLUMN: "_row-id-col-1",
    row_tracking.MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: "_row-commit-version-col-1",
}
ON = {"delta.enableRowTracking": "true", **NAMED}


def domain(configuration: str) -> DomainMetadata:
    return DomainMetadata(row_tracking.DOMAIN, configuration)


def test_the_domain_is_the_one_that_writers_use(golden_root: Path) -> None:
    cases = json.loads((golden_root / "manifest.json").read_text(encoding="utf-8"))["cases"]
    domains = next(c["domains"] for c in cases if c["name"] == "table-with-domain-metadata")
    theirs = domain(domains[row_tracking.DOMAIN])
    assert high_water_mark(theirs, table="tbl") == 435
    # What we write has the keys that they write, and no other.
    ours = json.loads(high_water_mark_domain(435).configuration)
    assert ours == {
        key: value for key, value in json.loads(theirs.configuration).items() if value == 435
    }


def test_the_properties_are_those_of_the_model() -> None:
    properties = TableProperties(NAMED, "tbl")
    assert properties.row_id_column_name == "_row-id-col-1"
    assert properties.row_commit_version_column_name == "_row-commit-version-col-1"


@pytest.mark.parametrize(
    ("configuration", "mark"),
    [
        ('{"highWaterMark":7}', 7),  # the specification's key
        ('{"rowIdHighWaterMark":7}', 7),
        ('{"rowIdHighWaterMark":7,"highWaterMark":9}', 9),
        ('{"rowIdHighWaterMark":9,"highWaterMark":7,"domainName":"delta.rowTracking"}', 9),
        ('{"rowIdHighWaterMark":-1}', -1),
    ],
)
def test_the_mark_is_read_under_either_key(configuration: str, mark: int) -> None:
    assert high_water_mark(domain(configuration), table="tbl") == mark


def test_without_the_domain_no_id_was_given_out() -> None:
    assert high_water_mark(None, table="tbl") == -1


@pytest.mark.parametrize(
    "configuration", ["", "{", "{}", "[7]", "7", '{"rowIdHighWaterMark":"7"}', "[" * 100_000]
)
def test_a_domain_without_a_mark_is_refused(configuration: str) -> None:
    with pytest.raises(InvalidTableError, match="expected a JSON object with an integer") as caught:
        high_water_mark(domain(configuration), table="tbl")
    assert caught.value.domain == row_tracking.DOMAIN


def test_an_enabled_table_names_its_hidden_columns() -> None:
    check_materialized_columns(TableProperties(ON, "tbl"), ["id", "part"])
    check_materialized_columns(TableProperties({}, "tbl"), ["id"])
    for missing in NAMED:
        rest = {key: value for key, value in ON.items() if key != missing}
        with pytest.raises(InvalidTableError, match=f"{missing} is missing"):
            check_materialized_columns(TableProperties(rest, "tbl"), ["id"])


@pytest.mark.parametrize("taken", ["_row-id-col-1", "_ROW-COMMIT-VERSION-COL-1"])
def test_a_hidden_column_is_no_other_column(taken: str) -> None:
    with pytest.raises(InvalidTableError, match="as another column is called"):
        check_materialized_columns(TableProperties(ON, "tbl"), ["id", taken])


def test_the_hidden_columns_are_two() -> None:
    same = dict.fromkeys(NAMED, "_row")
    with pytest.raises(InvalidTableError, match="as another column is called"):
        check_materialized_columns(TableProperties({**ON, **same}, "tbl"), ["id"])


def test_tracking_is_not_enabled_and_suspended_at_once() -> None:
    suspended = TableProperties({**ON, "delta.rowTrackingSuspended": "true"}, "tbl")
    with pytest.raises(InvalidTableError, match="set one of them to false"):
        check_materialized_columns(suspended, ["id"])
