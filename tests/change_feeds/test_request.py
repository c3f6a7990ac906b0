from __future__ import annotations

import pytest

from airflow_delta.change_feeds.request import FeedRequest, check_columns
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    StructField,
    StructType,
)

REQUEST = FeedRequest("/t", 3, 7, "/c")
ID = StructField("id", LONG, nullable=False, metadata={"comment": "mine"})
TAGS = StructField("tags", ArrayType(StructType((StructField("t", STRING),)), False))
CHANGE = (
    StructField("_change_type", STRING),
    StructField("_commit_version", LONG),
    StructField("_commit_timestamp", TIMESTAMP),
)


def test_a_target_has_the_columns_of_the_table_whatever_they_promise() -> None:
    table = StructType((ID, TAGS))
    check_columns(REQUEST, table)
    tags = StructField("tags", ArrayType(StructType((StructField("t", STRING),))))
    check_columns(REQUEST, table, StructType((*CHANGE, tags, StructField("id", LONG))))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ((ID, *CHANGE), r"lacks the columns \['tags'\], .* DeltaTable\('/c'\)\.alter\.add_columns"),
        ((ID, TAGS), "and not all of .*: no change feed has written it"),
        (
            (ID, TAGS, StructField("old", LONG), *CHANGE),
            r"columns \['old'\] have another type .* parquet",
        ),
        (
            (StructField("id", INTEGER), TAGS, *CHANGE),
            r"columns \['id'\] have another type .* parquet",
        ),
        (
            (ID, StructField("tags", ArrayType(StructType((StructField("u", STRING),)))), *CHANGE),
            r"columns \['tags'\] have another type",
        ),
    ],
)
def test_other_columns_are_refused_with_what_helps(
    held: tuple[StructField, ...], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_columns(REQUEST, StructType((ID, TAGS)), StructType(held))


@pytest.mark.parametrize("held", [None, StructType(CHANGE)])
@pytest.mark.parametrize("name", ["x y", "x=y"])
def test_names_that_need_column_mapping_go_to_parquet(name: str, held: StructType | None) -> None:
    """Mapped targets aren't written, so that mapping can't be the advice."""
    schema = StructType((ID, StructField(name, LONG)))
    with pytest.raises(InvalidArgumentError, match=rf"\['{name}'\] need .* the format parquet"):
        check_columns(REQUEST, schema, held)
    # Partition columns can be called anything.
    check_columns(REQUEST, schema, StructType((*CHANGE, *schema)))
