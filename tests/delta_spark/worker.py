"""A Spark session with Delta Spark in a process of its own: statements in, rows out, as JSON lines.

The session of the other tests has no Delta jar, which is the point of them, and a process has one JVM.

Usage: ``python -m tests.delta_spark.worker JAR…``
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    # One session serves all tests. In 512 MB it comes to do little but collect garbage.
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Each statement is another one, on a few rows: compiling it takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Tables are made as the tests say, and shall not differ by what a version of the peer adds.
    "spark.databricks.delta.checkpoint.partSize": "",
}


def main() -> None:
    """Answer requests until there are no more."""
    # What the JVM and its gateway print shall not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[2]").appName("delta-spark-peer")
    settings = {name: value for name, value in _SETTINGS.items() if value}
    session = builder.config(map={**settings, "spark.jars": ",".join(sys.argv[1:])}).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        print(json.dumps(_answer(session, json.loads(line)), default=str), file=answers, flush=True)
    session.stop()


def _answer(session: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    try:
        for name, value in request.get("settings", {}).items():
            session.conf.set(name, value)
        return {"rows": session.sql(request["sql"]).toArrow().to_pylist()}
    # Whatever the peer says is told to the test, which decides.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
