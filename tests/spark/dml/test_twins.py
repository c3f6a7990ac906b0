"""The same random changes of rows through Delta Spark and through us; see `twins`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.spark.dml.random_changes import Kind, RandomChanges
from tests.spark.dml.twins import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "everything": Kind(
        vectors=True, mapping="name", feed=True, tracked=True, partitioned=True, constrained=True
    ),
    "plain": Kind(),
    "vectors, row ids": Kind(vectors=True, tracked=True),
    "feed, row ids, partitions": Kind(feed=True, tracked=True, partitioned=True),
    "vectors, mapping by id, feed": Kind(vectors=True, mapping="id", feed=True),
    "mapping by name, row ids, constraints": Kind(mapping="name", tracked=True, constrained=True),
    "vectors, partitions, constraints": Kind(vectors=True, partitioned=True, constrained=True),
    "mapping by id, feed, partitions": Kind(mapping="id", feed=True, partitioned=True),
}
"""Of each two features there are tables with both, with one of them, and with none."""
OTHERS = ["append", "overwrite", "replace", "optimize", "restore"]
IN_SHORT = "everything"


@pytest.mark.parametrize("name", deep_but_for(KINDS, IN_SHORT))
def test_both_engines_change_rows_alike_and_go_on_with_each_others_table(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, name: str
) -> None:
    rng = random.Random(name)
    steps = ["delete", "update", "merge", "merge"]
    if name != IN_SHORT:
        steps += ["merge", "update", rng.choice(OTHERS), rng.choice(OTHERS)]
    rng.shuffle(steps)
    twins = Twins(delta_spark, tmp_path, KINDS[name], RandomChanges(spark, rng, tmp_path / "table"))
    twins.run(steps)
    assert not twins.differences, "\n".join(twins.differences)
