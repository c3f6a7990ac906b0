"""End a YARN application and fetch its result: a program that the worker runs with spark-submit.

    spark-submit --master local … client_program.py <tag> <path of the report>

It finds the application by its tag, kills it unless it has ended, reads and deletes the file that
`driver_program` has published, and deletes the staging directory. So it needs neither the application's
id, nor Hadoop's commands on the ``PATH``; spark-submit logs in with a keytab, if there is one. The
report is JSON::

    {"applications": [{"id": "application_…", "state": "FINISHED", "final_status": "SUCCEEDED",
      "diagnostics": "", "tracking_url": "http://…"}], "result": {…}}

``result`` is null if the driver has published none. The module imports nothing else of this package, and
runs without a Spark session.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext

__all__ = ["main"]

_ENDED = ("FINISHED", "FAILED", "KILLED")
_PREFIX = "airflow-delta-"
_KEPT_SECONDS = 7 * 24 * 3600
"""The age from which the result of a killed worker's application is deleted."""


def main() -> int:
    """Do what the module says, for the tag of the command line."""
    tag, path = sys.argv[1:]
    SparkContext._ensure_initialized()  # noqa: SLF001
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    conf = jvm.org.apache.spark.SparkConf()
    settings = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    applications = _end_applications(jvm, settings, tag)
    base = _base_folder(jvm, settings, conf)
    storage = base.getFileSystem(settings)
    folder = jvm.org.apache.hadoop.fs.Path(base, ".sparkStaging")
    _write_report(path, {"applications": applications, "result": None})
    published = jvm.org.apache.hadoop.fs.Path(folder, f"{tag}.json")
    result = _read_result(storage, published)
    _write_report(path, {"applications": applications, "result": result})
    # Only now, so that an error here loses no result.
    storage.delete(published, False)
    if not conf.getBoolean("spark.yarn.preserve.staging.files", False):
        for application in applications:
            storage.delete(jvm.org.apache.hadoop.fs.Path(folder, application["id"]), True)
    _delete_old_results(jvm, storage, folder)
    return 0


def _write_report(path: str, report: dict[str, Any]) -> None:
    unfinished = Path(f"{path}.part")
    unfinished.write_text(json.dumps(report), encoding="utf-8")
    unfinished.replace(path)


def _end_applications(jvm: Any, settings: Any, tag: str) -> list[dict[str, str]]:
    """Kill the applications with a tag that haven't ended, and describe all of them."""
    client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
    client.init(jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(settings))
    client.start()
    try:
        tags = jvm.java.util.HashSet()
        tags.add(tag)
        request = (
            jvm.org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
        )
        request.setApplicationTags(tags)
        reports = list(client.getApplications(request))
        for report in reports:
            if report.getYarnApplicationState().toString() not in _ENDED:
                client.killApplication(report.getApplicationId())  # waits for the end
        return [
            _described(client.getApplicationReport(each.getApplicationId())) for each in reports
        ]
    finally:
        client.stop()


def _described(report: Any) -> dict[str, str]:
    return {
        "id": report.getApplicationId().toString(),
        "state": report.getYarnApplicationState().toString(),
        "final_status": report.getFinalApplicationStatus().toString(),
        "diagnostics": report.getDiagnostics() or "",
        "tracking_url": report.getTrackingUrl() or "",
    }


def _base_folder(jvm: Any, settings: Any, conf: Any) -> Any:
    """The directory of this user's staging directories, as Spark's YARN client finds it."""
    path = jvm.org.apache.hadoop.fs.Path
    given = conf.get("spark.yarn.stagingDir", "")
    if given:
        user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
        return path(path(given), user.getShortUserName())
    return jvm.org.apache.hadoop.fs.FileSystem.get(settings).getHomeDirectory()


def _read_result(storage: Any, path: Any) -> Any:
    """Read the result; None if there is none."""
    if not storage.exists(path):
        return None
    stream = storage.open(path)
    try:
        return json.loads(bytes(stream.readAllBytes()))
    finally:
        stream.close()


def _delete_old_results(jvm: Any, storage: Any, folder: Any) -> None:
    """Delete results that nobody has read, because their worker was killed."""
    pattern = jvm.org.apache.hadoop.fs.Path(folder, f"{_PREFIX}*")
    now = time.time()
    for status in storage.globStatus(pattern) or ():
        if status.getModificationTime() / 1000 < now - _KEPT_SECONDS:
            storage.delete(status.getPath(), False)


if __name__ == "__main__":
    sys.exit(main())
