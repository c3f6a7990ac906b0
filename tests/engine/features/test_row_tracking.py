from __future__ import annotations

import json
from pathlib import Path

from airflow_delta.engine.features import row_tracking
from airflow_delta.engine.model.properties import TableProperties


def test_the_domain_is_the_one_that_writers_use(golden_root: Path) -> None:
    cases = json.loads((golden_root / "manifest.json").read_text(encoding="utf-8"))["cases"]
    domains = next(c["domains"] for c in cases if c["name"] == "table-with-domain-metadata")
    assert json.loads(domains[row_tracking.DOMAIN])["rowIdHighWaterMark"] == 435


def test_the_properties_are_those_of_the_model() -> None:
    properties = TableProperties(
        {
            row_tracking.MATERIALIZED_ROW_ID_COLUMN: "_row-id-col-1",
            row_tracking.MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: "_row-commit-version-col-1",
        },
        "tbl",
    )
    assert properties.row_id_column_name == "_row-id-col-1"
    assert properties.row_commit_version_column_name == "_row-commit-version-col-1"
