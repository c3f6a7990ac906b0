"""Fixtures of all tests: a small table of the peer's, and the golden tables.

The golden tables are in the folder that the environment variable ``AIRFLOW_DELTA_GOLDEN`` names, else
in ``../shared/golden`` beside the checkout; where there is none, the tests over them are skipped, and a
line at the end says so.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import Phase, settings

from tests.delta_spark.peer import DeltaSpark, delta_spark_jars
from tests.distribution import Distribution, place

# In CI the same examples every time: a run shall tell of the change, not of its luck. Elsewhere new
# ones. "explain" is left out: it can take minutes.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("house")

# The tests are of the Spark that is installed with them, whatever else the machine has.
os.environ.pop("SPARK_HOME", None)
os.environ["PATH"] = os.pathsep.join(
    [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
)
_CLASSES = Path(sysconfig.get_path("data"), "spark-classes.jsa")
"""The archive of Spark's classes that ``make spark-classes`` writes; without it, JVMs start more slowly."""

os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    # A JVM of the tests doesn't live long enough for the code to pay off that its second compiler makes.
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Without that compiler Java reserves 48 MB for code. A session's code doesn't fit into them: it was
    # thrown away and compiled again, which took a fifth of the time.
    " -XX:ReservedCodeCacheSize=256m"
    # Spark loads twenty thousand classes to start. They are those of its release.
    " -XX:+UnlockDiagnosticVMOptions -XX:+IgnoreUnrecognizedVMOptions -XX:-BytecodeVerificationRemote"
    # A JVM that can't use the archive, for example that of another Java, doesn't, and says nothing.
    f" -XX:SharedArchiveFile={_CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off",
)

GOLDEN = Path(
    os.environ.get("AIRFLOW_DELTA_GOLDEN")
    or Path(__file__).resolve().parents[2] / "shared" / "golden"
)
NO_GOLDEN = f"the golden corpus is not in {GOLDEN}; AIRFLOW_DELTA_GOLDEN can name another folder"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of pytest-xdist: what takes longest begins."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Distribution | None:
    """What ``--dist loadfile`` means here; see `tests.distribution`."""
    return Distribution(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what a run without the golden tables leaves out."""
    if not (GOLDEN / "manifest.json").is_file():
        terminalreporter.write_line(f"not tested: tables that reference engines wrote; {NO_GOLDEN}")


def golden_manifest() -> list[dict[str, Any]]:
    """The cases of the corpus; empty where the corpus isn't there."""
    manifest = GOLDEN / "manifest.json"
    if not manifest.is_file():
        return []
    cases: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["cases"]
    return cases


def write_sales(table: Path, *, version: int = 3) -> Path:
    """A table that deltalake writes, up to a version.

    Versions 0 to 2 append ten rows each, ``id`` 0 to 29; version 3 deletes those below 5. A minute
    lies between two commits.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    for number in range(version + 1):
        if number == 3:
            DeltaTable(str(table)).delete("id < 5")
        else:
            ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
            write_deltalake(str(table), pa.table({"id": ids}), mode="append")
        modified = 1_750_000_000 + 60 * number
        os.utime(table / "_delta_log" / f"{number:020}.json", (modified, modified))
    return table


@pytest.fixture(scope="session")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of `write_sales`: for reading only."""
    return write_sales(tmp_path_factory.mktemp("tables") / "sales")


@pytest.fixture
def sales_copy(sales: Path, tmp_path: Path) -> Path:
    """The table of `write_sales`, the test's own, which it may change."""
    return Path(shutil.copytree(sales, tmp_path / "sales"))


@pytest.fixture(scope="session")
def golden_root() -> Path:
    """The folder of the golden corpus."""
    if not GOLDEN.is_dir():
        pytest.skip(NO_GOLDEN)
    return GOLDEN


def unpack(case: dict[str, Any], target: Path) -> Path:
    """Unpack a case of the corpus, keeping modification times, and give the table's folder."""
    with tarfile.open(GOLDEN / "cases" / Path(case["file"]).name) as archive:
        archive.extractall(target, filter="data")
    template = case.get("template")
    if template:
        # A log that names its own absolute location.
        file = target / template["file"]
        stat = file.stat()
        root = quote(str((target / "delta").resolve()))
        root += "/" + template["relative"] if template["relative"] else ""
        text = file.read_text(encoding="utf-8").replace(template["placeholder"], root)
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return target / "delta"


@pytest.fixture(scope="session")
def golden_case(
    golden_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A function from a case's name to its table, unpacked once: for reading only."""
    cases = {case["name"]: case for case in golden_manifest()}
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(cases[name], tmp_path_factory.mktemp("golden") / name)
        return unpacked[name]

    return get


@pytest.fixture
def golden_copy(golden_root: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A function from a case's name to a table of the test's own, which it may change."""
    cases = {case["name"]: case for case in golden_manifest()}
    return lambda name: unpack(cases[name], tmp_path / name)


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSpark]:
    """Delta Spark, the reference engine, in a process of its own."""
    jars = delta_spark_jars()
    if not jars:
        if os.environ.get("CI") and shutil.which("mvn"):
            pytest.fail("Delta Spark isn't there, though Maven is: make delta-spark")
        pytest.skip("Delta Spark isn't there; with Maven installed, `make delta-spark` fetches it")
    peer = DeltaSpark(jars)
    yield peer
    peer.close()
