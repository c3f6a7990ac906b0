"""Tables that Spark optimizes here: Delta Spark reads them, and goes on where we have stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.spark import optimize
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.row_tables import bag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.deep

PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableTypeWidening": "true",
}
READ = "SELECT *, _metadata.row_id AS i, _metadata.row_commit_version AS v FROM T!"


@pytest.mark.parametrize(
    ("mode", "layout"),
    [("name", "PARTITIONED BY (p)"), ("id", "CLUSTER BY (id, s.xy)"), ("none", "")],
)
def test_delta_spark_goes_on_after_us(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, mode: str, layout: str
) -> None:
    root = tmp_path / "t"
    table = DeltaTable(str(root))

    def sql(statement: str) -> list[dict[str, Any]]:
        try:
            return delta_spark.sql(statement.replace("T!", f"delta.`{root}`"))
        except DeltaSparkError as error:
            # The statement is done, but Arrow can't hold its report.
            if "nulls in input cannot be viewed" not in str(error):
                raise
            return []

    def insert(first: int) -> None:
        sql(
            f"INSERT INTO T! SELECT CAST(id AS INT), named_struct('xy', concat('é', id % 7)), id / 3, "
            f"elt(1 + id % 3, NULL, 'a%20=b/c', 'é') FROM range({first}, {first + 40}, 1, 2)"
        )

    told = ", ".join(
        f"'{name}'='{value}'"
        for name, value in {**PROPERTIES, "delta.columnMapping.mode": mode}.items()
    )
    columns = "id INT, s STRUCT<xy: STRING>, d DOUBLE, p STRING"
    sql(f"CREATE TABLE T! ({columns}) USING delta {layout} TBLPROPERTIES ({told})")
    insert(0)
    insert(40)
    sql("DELETE FROM T! WHERE id % 7 = 3")
    sql("UPDATE T! SET d = -d WHERE id BETWEEN 12 AND 22")
    sql("ALTER TABLE T! ADD COLUMN more STRING")
    before = bag(sql(READ))
    done = optimize(spark, str(root))
    assert done.num_removed > done.num_added > 0
    assert bag(sql(READ)) == before
    assert bag(table.snapshot().to_arrow(with_row_tracking=True).to_pylist()).total() == (
        before.total()
    )
    # Delta Spark finds nothing to do, and later takes our files with its new ones.
    version = table.latest_version()
    sql("OPTIMIZE T!")
    assert table.latest_version() == version
    sql("INSERT INTO T! (id, s, d, p, more) SELECT id, NULL, 0, 'é', 'new' FROM range(90, 95)")
    sql("DELETE FROM T! WHERE id = 1")
    rows = bag(sql(READ))
    sql("OPTIMIZE T!")
    assert table.latest_version() > version + 2
    assert bag(sql(READ)) == rows
    if "CLUSTER" in layout:
        tags = [dict(tags or ()) for tags in table.snapshot().files()["tags"].to_pylist()]
        assert len(Counter(each.get("ZCUBE_ID") for each in tags)) == 1
    assert optimize(spark, str(root)).num_commits <= 1
    assert bag(sql(READ)) == rows
