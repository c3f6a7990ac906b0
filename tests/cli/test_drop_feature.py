"""``airflow-delta drop-feature``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable, StructField, StructType
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import LONG


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    schema = StructType((StructField("id", LONG),))
    return DeltaTable.create(tmp_path, schema, properties={"delta.checkpointPolicy": "v2"})


def features(table: DeltaTable) -> frozenset[str]:
    return supported_features(table.snapshot().protocol)


def test_a_feature_is_dropped(table: DeltaTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drop-feature", table.uri, "v2checkpoint", "--dry-run"]) == 0
    assert "v2Checkpoint would be dropped behind protected checkpoints" in capsys.readouterr().out
    assert table.latest_version() == 0
    assert main(["drop-feature", table.uri, "v2Checkpoint", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["table_uri"], facts["feature"]) == (table.uri, "v2Checkpoint")
    assert (facts["status"], facts["version"]) == ("dropped", 5)
    assert features(table) == {"checkpointProtection"}


def test_a_drop_that_has_to_wait_says_so(
    table: DeltaTable, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["drop-feature", table.uri, "v2Checkpoint", "--truncate-history"]
    assert main(words) == 0
    assert "--yes" in capsys.readouterr().err
    assert table.latest_version() == 0
    assert main([*words, "--yes"]) == 3
    assert "come back at" in capsys.readouterr().out
    assert features(table) == {"v2Checkpoint"}
    assert table.snapshot().properties.checkpoint_policy == "classic"


def test_a_feature_that_stays_is_an_error(
    table: DeltaTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drop-feature", table.uri, "timestampNtz"]) == 1
    assert "the feature timestampNtz can't be dropped" in capsys.readouterr().err
