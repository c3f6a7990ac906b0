"""Which files may come with a deletion vector."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.engine.transaction.prepare.attempts import (
    VECTOR,
    attempt,
    counted,
    file,
    table,
    tombstone,
)
from tests.log_builder import add

ON = {"delta.enableDeletionVectors": "true"}
OTHER = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "{}",
        '{"numRecords":null}',
        '{"numRecords":"9"}',
        '{"numRecords":true}',
        '{"numRecords":-1}',
    ],
)
def test_a_deletion_vector_comes_with_the_number_of_records(
    tmp_path: Path, stats: str | None
) -> None:
    table(tmp_path, ("deletionVectors",), configuration=ON)
    with pytest.raises(ConstraintViolationError, match="lack numRecords"):
        attempt(tmp_path, adds=(file(deletion_vector=VECTOR, stats=stats),))
    attempt(tmp_path, adds=(file(deletion_vector=VECTOR, stats=counted(30)),))


@pytest.mark.parametrize(
    ("features", "configuration", "lacking"),
    [
        (("domainMetadata",), ON, "the feature deletionVectors"),
        (("deletionVectors",), {}, "delta.enableDeletionVectors=true"),
        (
            ("deletionVectors",),
            {"delta.enableDeletionVectors": "false"},
            "delta.enableDeletionVectors=true",
        ),
    ],
)
def test_a_table_without_deletion_vectors_gets_none(
    tmp_path: Path, features: tuple[str, ...], configuration: dict[str, str], lacking: str
) -> None:
    table(tmp_path, features, configuration=configuration)
    with pytest.raises(ConstraintViolationError, match=f"the table lacks {lacking}"):
        attempt(tmp_path, adds=(file(deletion_vector=VECTOR, stats=counted(30)),))
    attempt(tmp_path, adds=(file(stats=counted(30)),))


def test_a_vector_that_is_there_may_stay_when_no_new_ones_are_wanted(tmp_path: Path) -> None:
    live = add("f.parquet", deletionVector=VECTOR.to_json(), stats=counted(30))
    table(tmp_path, ("deletionVectors",), live)
    again = file(deletion_vector=VECTOR, stats=counted(30), data_change=False)
    attempt(tmp_path, adds=(again,))
    other = file(deletion_vector=OTHER, stats=counted(30))
    with pytest.raises(ConstraintViolationError, match=r"lacks delta\.enableDeletionVectors"):
        attempt(tmp_path, adds=(other,), removes=(tombstone("f.parquet", deletion_vector=VECTOR),))
