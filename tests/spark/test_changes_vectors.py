from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark.changes_vectors import rows_by_vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The ends of words, of what int32 holds, and more rows than a file has in practice.
PLACES = [0, 1, 62, 63, 64, 65, 127, 128, 4095, 2**31 - 1, 2**31, 2**32, 2**36 + 63]


def test_vectors_leave_out_or_take(spark: SparkSession) -> None:
    """Against sets, over entries with vectors of all sizes, in both senses."""
    chance = random.Random(8)
    vectors = {entry: set(chance.sample(PLACES, entry % 14)) for entry in range(28)}
    selecting = {entry for entry in vectors if chance.random() < 0.5}
    plain = 28
    rows = spark.range(plain + 1).select(
        F.col("id").cast("int").alias("entry"),
        F.explode(F.array(*[F.lit(place).cast("long") for place in PLACES])).alias("row_index"),
        F.col("id").isin(*selecting).alias("selects"),
    )
    arrays = {e: np.array(sorted(found), dtype=np.int64) for e, found in vectors.items()}
    found = rows_by_vectors(spark, rows, arrays).select("entry", "row_index").collect()
    assert sorted(map(tuple, found)) == [
        (entry, place)
        for entry in range(plain + 1)
        for place in PLACES
        if (place in vectors.get(entry, set())) == (entry in selecting)
    ]
