"""A YARN cluster of the tests' own: Hadoop's MiniYARNCluster and MiniDFSCluster, all daemons in one JVM.

    with yarn_cluster(folder) as cluster:
        ...  # submit with HADOOP_CONF_DIR = cluster.conf

Containers are processes of their own, in working directories of their own, with an environment of their
own, and what they get comes through HDFS. It isn't a secure cluster: all containers run as one user.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

__all__ = ["YarnCluster", "yarn_cluster"]

_JARS = Path(pyspark.__file__).parent / "jars"
_MINICLUSTER = Path(
    os.environ.get("TESTS_YARN_JARS") or Path(sysconfig.get_path("data")) / "yarn-minicluster"
)
"""The jars that ``make yarn-minicluster`` has fetched, or those of another directory."""
_SETTINGS = {
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,JAVA_TOOL_OPTIONS,LANG,PATH",
    # Logs of containers stay, their working directories don't.
    "yarn.nodemanager.log.retain-seconds": "10800",
}
_PASSED = ("PATH", "HOME", "LANG", "JAVA_TOOL_OPTIONS")
"""The variables of this process that the daemons have."""
_END_SECONDS = 20


@dataclass(frozen=True)
class YarnCluster:
    """A running cluster.

    Attributes:
        conf: the directory with the settings of clients, for HADOOP_CONF_DIR.
        page: the address of the ResourceManager's web pages and REST interface.
        folder: where the cluster has its files.
        storage: Hadoop's file system of the cluster, in its JVM.
        jvm: the view of that JVM.
    """

    conf: Path
    page: str
    folder: Path
    storage: Any
    jvm: Any

    def applications(self) -> list[dict[str, Any]]:
        """What the ResourceManager knows of all applications, in the order of their submission."""
        with urlopen(f"{self.page}/ws/v1/cluster/apps", timeout=10) as answer:
            told = json.load(answer)
        found: list[dict[str, Any]] = (told["apps"] or {}).get("app", [])
        return sorted(found, key=lambda app: int(app["startedTime"]))

    def processes(self) -> dict[int, str]:
        """The processes of containers, by process id: their command lines."""
        found: dict[int, str] = {}
        here = str(self.folder).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                names = {text.partition(b"=")[0] for text in environment}
                if b"CONTAINER_ID" in names and here in b"".join(environment):
                    command = (process / "cmdline").read_bytes()
                    found[int(process.name)] = command.replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended, or is somebody else's
        return found

    def paths(self, pattern: str) -> dict[str, str]:
        """The paths in HDFS that match a pattern: their permissions."""
        path = self.jvm.org.apache.hadoop.fs.Path(pattern)
        return {
            status.getPath().toUri().getPath(): status.getPermission().toString()
            for status in self.storage.globStatus(path) or ()
        }

    def logs(self, application: str) -> str:
        """What all containers of an application have on their output."""
        files = self.folder.rglob(f"{application}/container_*/*")
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[YarnCluster]:
    """Start a cluster, and end it whatever happens.

    Args:
        folder: a directory for its files. What the daemons tell stays there, in ``cluster.log``.
    """
    if not list(_MINICLUSTER.glob("hadoop-client-minicluster-*.jar")):
        if os.environ.get("CI") and shutil.which("mvn"):
            pytest.fail("Hadoop's minicluster isn't there, though Maven is: make yarn-minicluster")
        pytest.skip(
            "Hadoop's minicluster isn't there; with Maven installed, `make yarn-minicluster`"
        )
    java = os.environ.get("JAVA_HOME") or str(Path(shutil.which("java") or "").resolve().parents[1])
    environment = {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        "JAVA_HOME": java,
    }
    (py4j,) = _JARS.glob("py4j-*.jar")
    classpath = os.pathsep.join([f"{_MINICLUSTER}/*", f"{_JARS}/*", str(py4j)])
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(f"{java}/bin/java", "-Xmx384m", f"-Dyarn.log.dir={folder}", "-cp", classpath),
                *("py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdin
    assert process.stdout
    try:
        port, token = (process.stdout.readline().decode().strip() for _ in range(2))
        parameters = GatewayParameters(port=int(port), auth_token=token)
        gateway = JavaGateway(gateway_parameters=parameters)
        cluster = _started(gateway.jvm, folder, _SETTINGS)
        try:
            yield cluster
        finally:
            for number in cluster.processes():
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            # Objects of the JVM may be collected later, when there is nobody to report it to.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            gateway.shutdown()
    finally:
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(jvm: Any, folder: Path, settings: Mapping[str, str]) -> YarnCluster:
    conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in {**settings, "hdfs.minidfs.basedir": str(folder / "hdfs")}.items():
        conf.set(name, value)
    files = jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(1).build()
    conf.set("fs.defaultFS", files.getURI().toString())
    cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
    cluster.init(conf)
    cluster.start()
    assert cluster.waitForNodeManagersToConnect(20_000)
    found = cluster.getConfig()
    names = ("yarn.resourcemanager.address", "yarn.resourcemanager.webapp.address")
    scheduler = "yarn.resourcemanager.scheduler.address"
    told = {name: found.get(name) for name in (*names, scheduler, "fs.defaultFS")}
    directory = folder / "conf"
    directory.mkdir()
    for name in ("core-site.xml", "yarn-site.xml"):
        entries = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in told.items()
        )
        (directory / name).write_text(f"<configuration>{entries}</configuration>")
    page = f"http://{told['yarn.resourcemanager.webapp.address']}"
    return YarnCluster(directory, page, folder, files.getFileSystem(), jvm)
