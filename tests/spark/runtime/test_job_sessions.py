"""What is said where Spark doesn't start."""

from __future__ import annotations

import pytest

from airflow_delta.spark.runtime.job_sessions import _start_failure

# As py4j tells the errors of the JVM.
CALL = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
STOPPED = (
    CALL + "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
    "This stopped SparkContext was created at:\n\norg.apache.spark.api.java.JavaSparkContext.<init>\n"
)
REFUSED = CALL + "java.net.BindException: Cannot assign requested address\n\tat sun.nio.ch.Net.bind"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STOPPED, "no master accepted it within a minute"),
        (REFUSED, "started: java.net.BindException: Cannot assign requested address"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "started: [JAVA_GATEWAY_EXITED]"),
        ("", "started: RuntimeError"),
    ],
)
def test_the_cause_is_told_and_not_the_call(text: str, told: str) -> None:
    found = _start_failure(RuntimeError(text))
    assert told in found
    assert "JavaSparkContext" not in found
    assert "\n" not in found
