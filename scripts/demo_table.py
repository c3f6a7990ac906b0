"""Make the demo's table: sales of a few shops, one commit a day, written by PySpark.

Usage: python scripts/demo_table.py TABLE_URI

Every value is computed from the row's number and a seed, so that each run makes the same rows.
"""

from __future__ import annotations

import argparse
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (PySpark's own convention)

from airflow_delta.spark import write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEED = 7
COMMITS = 25
ROWS_PER_COMMIT = 2_000
FIRST_DAY = date(2026, 1, 1)
SHOPS = ("Aarhus", "Bologna", "Cádiz", "Dresden", "Évora")


def pick(name: str, choices: int) -> Column:
    """A number below ``choices``, the same for a row and a name whenever it is computed."""
    return F.pmod(F.xxhash64(F.lit(SEED), F.lit(name), F.col("id")), F.lit(choices))


def sales_of_day(spark: SparkSession, number: int) -> DataFrame:
    """The rows of one day."""
    day = FIRST_DAY + timedelta(days=number)
    first = number * ROWS_PER_COMMIT
    return spark.range(first, first + ROWS_PER_COMMIT, numPartitions=1).select(
        F.col("id").alias("sale_id"),
        F.lit(day).alias("day"),
        F.element_at(F.array(*map(F.lit, SHOPS)), (pick("shop", len(SHOPS)) + 1).cast("int")).alias(
            "shop"
        ),
        F.concat(F.lit("P-"), F.lpad(pick("product", 400).cast("string"), 4, "0")).alias("product"),
        (pick("quantity", 9) + 1).cast("int").alias("quantity"),
        (pick("price", 20_000) / 100).cast("decimal(10,2)").alias("unit_price"),
        F.timestamp_seconds(F.unix_timestamp(F.lit(day)) + pick("second", 86_400)).alias("sold_at"),
    )


def main() -> None:
    """Write the table, a commit for each day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table_uri")
    table_uri = parser.parse_args().table_uri
    spark = SparkSession.builder.appName("airflow-delta demo").getOrCreate()
    try:
        for number in range(COMMITS):
            write(sales_of_day(spark, number), table_uri, mode="append", partition_by=["day"])
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
