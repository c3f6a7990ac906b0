"""Write an archive of the classes that Spark loads, with which the tests' JVMs start in half the time.

The archive is one of Java's class data sharing: a JVM maps it instead of reading twenty thousand classes
from jars. A JVM of another Java or with other jars starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 120


def write_archive(path: Path) -> None:
    """Do with Spark some of what the tests do, and let its JVM write the classes that it has loaded.

    Args:
        path: the archive's file.

    Raises:
        RuntimeError: the JVM has written none.
    """
    path.unlink(missing_ok=True)
    # Only for the JVM of the session: with JAVA_TOOL_OPTIONS, the JVM that starts it would write one, too.
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"-XX:ArchiveClassesAtExit={path} -Xlog:cds=off -Xlog:cds+dynamic=off"
        " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        _work(spark, f"{folder}/table")
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - nothing public has the process of the JVM
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    # The JVM ends, and writes the archive, when its input is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)
    if not path.is_file():
        raise RuntimeError(f"Java has written no archive {path}")


def _work(spark: SparkSession, uri: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from airflow_delta.spark import delete, merge, read_snapshot, write

    rows = spark.range(1000).select(
        F.col("id"),
        (F.col("id") % 7).alias("part"),
        F.col("id").cast("string").alias("text"),
        (F.col("id") / 3).alias("number"),
        F.current_timestamp().alias("time"),
        F.struct(F.col("id").alias("a"), F.array(F.col("id")).alias("b")).alias("nested"),
    )
    write(rows, uri, partition_by=["part"])
    write(rows, uri)
    delete(spark, uri, "id = 3")
    (
        merge(
            spark, uri, rows.where("id < 50"), "target.id = source.id AND target.part = source.part"
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    read_snapshot(spark, uri, predicate="id > 5").groupBy("part").agg(F.max("time")).toArrow()


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
