from __future__ import annotations

import pytest

from airflow_delta.engine.features.feature import Feature, Kind


@pytest.mark.parametrize(("writer_version", "expected"), [(None, False), (5, True)])
def test_a_feature_is_legacy_if_a_writer_version_implies_it(
    writer_version: int | None, expected: bool
) -> None:
    row = Feature("x", Kind.WRITER, spec="", note="a note", writer_version=writer_version)
    assert row.is_legacy is expected
