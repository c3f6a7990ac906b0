"""Settings of the Spark session that change what names and queries mean: the results stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.spark import (
    add_constraint,
    delete,
    merge,
    read_snapshot,
    update,
    write,
)
from airflow_delta.spark.copy.text_files import write_text_files

SETTINGS = {
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.retainGroupColumns": "false",
}


@pytest.fixture(params=SETTINGS)
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """A session with one of the settings."""
    spark.conf.set(request.param, SETTINGS[request.param])
    yield spark
    spark.conf.unset(request.param)


def test_rows_are_written_changed_and_read(session: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    write(session.sql("SELECT id, 'a.b' AS text, id AS `i.d` FROM range(4)"), root)
    update(session, root, {"text": "'c'"}, "id = 1")
    source = session.sql("SELECT 5L AS id, 'new' AS text, 5L AS `i.d`")
    merging = merge(session, root, source, "target.id = source.id")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    delete(session, root, "id = 2")
    write(
        session.sql("SELECT 0L AS id, 'z' AS text, 0L AS `i.d`"),
        root,
        "overwrite",
        replace_where="id = 0",
    )
    expected = [(0, "z", 0), (1, "c", 1), (3, "a.b", 3), (5, "new", 5)]
    assert sorted(tuple(row) for row in read_snapshot(session, root).collect()) == expected
    some = read_snapshot(session, root, columns=["i.d"], predicate="id > 1")
    assert sorted(tuple(row) for row in some.collect()) == [(3,), (5,)]
    copied = str(tmp_path / "csv")
    assert write_text_files(read_snapshot(session, root), copied, "csv") == 4
    assert session.read.option("header", "true").csv(copied).where("text = 'new'").count() == 1


def test_rows_that_break_a_constraint_are_counted(session: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    write(session.range(4).toDF("id"), root)
    with pytest.raises(ConstraintViolationError) as found:
        add_constraint(session, root, "small", "id < 2")
    assert found.value.facts["num_rows"] == 2
