"""Questions about the log are answered without the libraries that file actions need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.checkpoint.plan import Kind
from tests.house.test_layers import loaded_after
from tests.log_builder import add, commit_path, write_commit, write_table

HEAVY = {"pyarrow", "numpy", "pandas"}

OPEN = """
from airflow_delta.engine import DeltaTable
table = DeltaTable({root!r})
"""

ASK_THE_LOG = """
assert table.exists()
assert table.latest_version() == table.latest_version(known=2) == 3
assert [info.version for info in table.history()] == [3, 2, 1, 0]
assert [info.timestamp_ms for info in table.history(2)] == [1003000, 1002000]
assert table.version_at(1001500) == 1
"""

ASK_THE_STATE = """
snapshot = table.snapshot({arguments})
assert snapshot.version == {version}
assert (snapshot.protocol.min_reader_version, snapshot.metadata.partition_columns) == ({reader}, ())
assert [field.name for field in snapshot.schema.fields] == ["id", "part"]
assert snapshot.properties.checkpoint_interval > 0
assert snapshot.transactions["app"].version == 7
assert snapshot.domains["d"].configuration == "x"
assert snapshot.timestamp_ms == 1000000 + 1000 * {version}
assert len(snapshot.features) > 0
"""

FIRST = [
    add("a"),
    {"txn": {"appId": "app", "version": 7}},
    {"domainMetadata": {"domain": "d", "configuration": "x", "removed": False}},
]
V2_CHECKPOINTS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint", "domainMetadata"],
    }
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(write_table(tmp_path, FIRST, [add("b")], [add("c")], [add("d")]))


def loaded(root: str, *statements: str) -> set[str]:
    return loaded_after(OPEN.format(root=root) + "".join(statements)) & HEAVY


def about_the_state(*, version: int, arguments: str = "", reader: int = 1) -> str:
    return ASK_THE_STATE.format(arguments=arguments, version=version, reader=reader)


def test_the_facade_is_light() -> None:
    assert not loaded_after("import airflow_delta.engine.table") & HEAVY


@pytest.mark.parametrize("checkpoint", [None, 1, 3])
def test_the_log_is_asked_lightly(root: str, checkpoint: int | None) -> None:
    if checkpoint is not None:
        DeltaTable(root).checkpoint(checkpoint)
    assert loaded(root, ASK_THE_LOG) == set()


@pytest.mark.parametrize(
    ("arguments", "version"), [("", 3), ("version=1", 1), ("timestamp=1001500", 1)]
)
def test_a_state_without_newer_commits_is_light(root: str, arguments: str, version: int) -> None:
    for checkpoint in (1, 3):
        DeltaTable(root).checkpoint(checkpoint)
    assert loaded(root, about_the_state(version=version, arguments=arguments)) == set()


def v2_with_sidecars(root: Path) -> None:
    table = DeltaTable(str(root))
    content = [
        {"checkpointMetadata": {"version": 3}},
        *(json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").open()),
    ]
    kept = [action for action in content if "add" not in action]
    name = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    target = root / "_delta_log" / name
    target.write_text("".join(json.dumps(action) + "\n" for action in kept), encoding="utf-8")
    checkpoint = table.snapshot().segment.checkpoint
    assert checkpoint is not None
    assert checkpoint.path.endswith(name)


@pytest.mark.parametrize("write", [v2_with_sidecars])
def test_a_state_in_lines_is_light(root: str, write: Callable[[Path], None]) -> None:
    write(Path(root))
    assert loaded(root, about_the_state(version=3)) == set()


@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize(
    ("policy", "versions", "suffix"),
    [
        ("classic", [3], ".checkpoint.parquet"),
        ("v2", [3], ".checkpoint.parquet"),  # the first one gets the classic name
        ("v2", [2, 3], ".json"),
    ],
)
def test_a_checkpoint_of_ours_is_all_that_a_state_takes(
    tmp_path: Path, policy: Kind, versions: list[int], suffix: str, hint: bool
) -> None:
    write_table(tmp_path, FIRST, [V2_CHECKPOINTS, add("b")], [add("c")], [add("d")])
    for version in versions:
        result = DeltaTable(str(tmp_path)).checkpoint(version, policy=policy)
    assert result.written
    assert (result.plan.kind, result.plan.path.endswith(suffix)) == (policy, True)
    for version in range(3):
        commit_path(tmp_path, version).unlink()
    if not hint:
        (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    assert loaded(str(tmp_path), about_the_state(version=3, reader=3)) == set()


def test_files_are_what_the_libraries_are_loaded_for(root: str) -> None:
    assert loaded(root, "assert table.snapshot().files(['path']).num_rows == 4") >= {"pyarrow"}


def test_new_commits_are_searched_for_metadata_lightly(root: str) -> None:
    DeltaTable(root).checkpoint(3)
    write_commit(Path(root), 4, add("e"), modified_ms=1_004_000)
    assert loaded(root, "assert table.version_at(1003999) == 3") == set()
    assert loaded(root, "assert table.history(1)[0].timestamp_ms == 1004000") == set()


IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({optional!r}))
import airflow_delta
names = [found.name for found in pkgutil.walk_packages(airflow_delta.__path__, "airflow_delta.")]
assert len(names) > 400
failed = set()
for name in names:
    try:
        importlib.import_module(name)
    except ImportError:
        failed.add(name)
expected = {{f"airflow_delta.engine.storage.{{name}}" for name in {stores!r}}}
expected.add("airflow_delta.hooks.lineage.facets")
assert failed == expected, sorted(failed ^ expected)
"""


def test_only_object_stores_and_lineage_need_what_is_optional() -> None:
    # Not the provider of OpenLineage itself: Airflow asks each one for its metadata.
    optional = ["obstore", "psycopg", "openlineage"]
    of_stores = ["s3", "gcs", "azure", "object_store", "obstore_errors", "upload_parts"]
    stores = [*of_stores, "exclusive_put"]
    loaded_after(IMPORT_ALL.format(optional=optional, stores=stores))


WITHOUT_SPARK = """
import importlib, pkgutil, sys
# As where they are missing; the provider itself stays: Airflow asks it for its metadata.
missing = ["pyspark", "py4j", "airflow.providers.apache.spark.hooks", "grpc"]
sys.modules.update(dict.fromkeys(missing))
import airflow_delta
failed = {}
for found in pkgutil.walk_packages(airflow_delta.__path__, "airflow_delta."):
    try:
        importlib.import_module(found.name)
    except Exception as error:
        failed[found.name] = error
of_spark = {name for name in failed if name.startswith("airflow_delta.spark.")}
assert len(of_spark) > 20
assert not [name for name in of_spark if ".jobs" in name]
for name in of_spark:
    assert any(word in str(failed[name]) for word in ("pyspark", "py4j")), (name, failed[name])
others = set(failed) - of_spark
assert others == {
    "airflow_delta.hooks.spark.submission",
    # Their tasks need Spark for sure.
    "airflow_delta.example_dags.delta_ingest",
    "airflow_delta.example_dags.delta_upsert",
    "airflow_delta.example_dags.delta_version_copy",
}, others
assert "pip install 'airflow-delta[spark]'" in str(
    failed["airflow_delta.example_dags.delta_version_copy"]
)
"""


READER = """
import sys
sys.modules.update(dict.fromkeys(["pyspark", "py4j"]))
try:
    from airflow_delta.spark import read_snapshot
except ImportError as error:
    assert "read_snapshot needs PySpark" in str(error), error
    assert "pip install 'airflow-delta[spark]'" in str(error), error
else:
    raise AssertionError
"""


def test_the_data_plane_without_spark_says_what_to_install() -> None:
    loaded_after(READER)


def test_only_the_data_plane_and_its_submission_need_spark() -> None:
    loaded_after(WITHOUT_SPARK)
