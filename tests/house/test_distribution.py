"""The wheel: what pip installs, and what it installs with it."""

from __future__ import annotations

import email
import re
import subprocess
import sys
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(content.read(name))


def requirements(metadata: Message, extra: str = "") -> dict[str, Requirement]:
    """What an installation with an extra needs, by the names of the packages."""
    found = map(Requirement, metadata.get_all("Requires-Dist", []))
    return {
        each.name: each
        for each in found
        if each.marker is None or each.marker.evaluate({"extra": extra})
    }


def test_the_examples_are_installed_with_the_package(wheel: Path) -> None:
    examples = {f"airflow_delta/example_dags/{path.name}" for path in (ROOT / "dags").glob("*.py")}
    assert len(examples) >= 7
    with ZipFile(wheel) as content:
        installed = set(content.namelist())
    assert examples <= installed
    assert {name.split("/")[0] for name in installed if ".dist-info/" not in name} == {
        "airflow_delta"
    }


def test_only_the_extra_brings_pyspark(metadata: Message) -> None:
    of_spark = {"pyspark", "pyspark-client", "apache-airflow-providers-apache-spark"}
    assert not of_spark & set(requirements(metadata))
    assert of_spark <= set(requirements(metadata, "spark"))


def test_the_package_says_where_its_words_come_from(metadata: Message) -> None:
    urls = dict(entry.split(", ", 1) for entry in metadata.get_all("Project-URL", []))
    assert urls
    assert all(url.startswith("https://") for url in urls.values())


def rows_of(page: str) -> dict[str, list[str]]:
    lines = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8").splitlines()
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line)
    return {name: others for name, *others in cells}


def test_the_table_of_compatibility_is_that_of_the_requirements(metadata: Message) -> None:
    rows = rows_of("compatibility.md")
    pins = dict(
        re.findall(
            r"^([\w-]+)==(\S+)(?: ; python_full_version >= '3\.11')? \\$",
            (ROOT / "constraints.txt").read_text(encoding="utf-8"),
            re.M,
        )
    )
    needed = {**requirements(metadata, "s3"), **requirements(metadata, "spark")}
    for row, package in (
        ("Apache Airflow", "apache-airflow"),
        ("PySpark, extra `spark`", "pyspark"),
        ("Airflow's Spark provider, extra `spark`", "apache-airflow-providers-apache-spark"),
        ("PyArrow", "pyarrow"),
        ("obstore, extras `s3`, `gcs`, `azure`", "obstore"),
        ("SQLAlchemy", "sqlalchemy"),
    ):
        required, tested = rows[row]
        least = {
            each.version for each in needed[package].specifier if each.operator in (">=", "==")
        }
        assert {required.split(" ")[0]} == least, row
        assert re.match(rf"{re.escape(pins[package])}\b", tested), row
    assert f"(Task SDK {pins['apache-airflow-task-sdk']})" in rows["Apache Airflow"][1]
    assert rows["`deltalake` (delta-rs)"][0] == pins["deltalake"]
    pythons = [
        entry.rpartition(" ")[2]
        for entry in metadata.get_all("Classifier", [])
        if re.search(r":: 3\.\d+$", entry)
    ]
    assert rows["Python"][0] == f"{pythons[0]} to {pythons[-1]}"
    pom = (ROOT / "tests" / "delta_spark" / "pom.xml").read_text(encoding="utf-8")
    (delta,) = re.findall(r"<version>(\d+\.\d+\.\d+)</version>", pom)
    assert rows["Delta Spark"][0] == f"{delta} for Spark {'.'.join(pins['pyspark'].split('.')[:2])}"
