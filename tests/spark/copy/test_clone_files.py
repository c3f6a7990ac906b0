"""What a clone is made of, by the logs alone: files are copied in this process, and Spark isn't asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.copies.clone_names import find_foreign_file
from airflow_delta.engine import DeltaTable, OptimisticTransaction, Snapshot
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import (
    UnsupportedFeatureError,
)
from airflow_delta.engine.maintenance.restore.clone_definition import stage_clone_definition
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.spark.copy.clone_files import CloneFiles, plan_clone_files
from airflow_delta.spark.copy.file_copying import copy_file
from airflow_delta.spark.writer.log_actions import live_files
from tests.conftest import golden_manifest
from tests.log_builder import add, metadata, remove, write_commit

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
OTHER_VECTOR = {**VECTOR, "offset": 60, "cardinality": 7}
VECTOR_FILE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
ELSEWHERE = {**VECTOR, "storageType": "p", "pathOrInlineDv": "s3://else/where/dv%201.bin"}
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}


def protocol(*features: str) -> dict[str, Any]:
    readers = [name for name in features if name in ("deletionVectors", "columnMapping")]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": list(features),
        }
    }


def cloned(source: Snapshot, target: Path, *, copies: bool = False) -> CloneFiles:
    """Make a clone, or bring one up to date, without its files unless asked for."""
    table = DeltaTable(str(target))
    storage = table.storage
    transaction = (
        table.transaction("CLONE")
        if table.exists()
        else OptimisticTransaction(storage, None, "CLONE")
    )
    files = plan_clone_files(source, transaction.snapshot, table=storage.root)
    for copy in files.copies if copies else ():
        copy_file(copy, FileAccess(source.storage), storage)
    transaction.declare(CloneVersion(source, files.keys))
    stage_clone_definition(transaction, source)
    transaction.set_transaction("copy", source.version)
    transaction.add_files(list(files.adds))
    for removed in files.removes:
        transaction.remove_file(removed)
    transaction.commit()
    return files


def told(count: int = 9) -> str:
    return json.dumps({"numRecords": count})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_commit(tmp_path / "source", 0, protocol("deletionVectors", "domainMetadata"), metadata())
    return tmp_path / "source"


def snapshot(table: Path) -> Snapshot:
    return DeltaTable(str(table)).snapshot()


def targets(files: CloneFiles) -> dict[str, str]:
    """Where the copies are from, by their paths behind the directory of the run."""
    assert all(copy.target.startswith(f"{files.directory}/") for copy in files.copies)
    return {copy.target.removeprefix(f"{files.directory}/"): copy.source for copy in files.copies}


def test_files_keep_their_paths_below_the_root_and_others_get_one(
    source: Path, tmp_path: Path
) -> None:
    inside = f"{source}/q/c%20d"
    write_commit(
        source,
        1,
        add("p=1/a%2520b", stats=told()),
        add(inside, stats=told()),
        add("s3://else/where/e%20f", stats=told()),
        add("../up", stats=told()),
        add("x//y", stats=told()),
    )
    files = cloned(snapshot(source), tmp_path / "copy")
    found = targets(files)
    elsewhere = {name: place for name, place in found.items() if name.startswith("elsewhere-")}
    assert {name: found[name] for name in found.keys() - elsewhere.keys()} == {
        "p=1/a%20b": "p=1/a%20b",
        "q/c d": "q/c d",
    }
    assert sorted(elsewhere.values()) == sorted(
        [f"{source}/../up", f"{source}/x//y", "s3://else/where/e f"]
    )
    assert {name.rpartition("/")[2] for name in elsewhere} == {"up", "y", "e f"}
    assert len({name.partition("/")[0] for name in elsewhere}) == 3, "one place, one name"
    paths = {resolve("/r", file.path) for file in files.adds}
    assert paths == {f"/r/{files.directory}/{name}" for name in found}
    again = cloned(snapshot(source), tmp_path / "copy")
    assert (again.copies, again.adds, again.removes) == ((), (), ())


def test_deletion_vectors_come_along_and_files_stay_under_new_ones(
    source: Path, tmp_path: Path
) -> None:
    write_commit(
        source,
        1,
        add("a", stats=told(), deletionVector=VECTOR),
        add("b", stats=told(), deletionVector=ELSEWHERE),
        add("c", stats=told(), deletionVector=INLINE),
        add("d", stats=told()),
    )
    first = cloned(snapshot(source), tmp_path / "copy")
    vectors = {name: place for name, place in targets(first).items() if name.endswith(".bin")}
    assert vectors.pop(VECTOR_FILE) == f"ab/{VECTOR_FILE}"
    assert list(vectors.values()) == ["s3://else/where/dv 1.bin"]
    for file in first.adds:
        descriptor = file.deletion_vector
        if descriptor and descriptor.storage_type == "u":
            assert f"/{get_relative_path(descriptor)}" in {
                f"/{copy.target}" for copy in first.copies
            }
    # Another vector of a file that is there, one of a file of vectors that is there too, and one less.
    write_commit(
        source,
        2,
        remove("d"),
        add("d", stats=told(), deletionVector=OTHER_VECTOR),
        remove("c", deletionVector=INLINE),
        add("c", stats=told()),
        remove("b", deletionVector=ELSEWHERE),
    )
    second = cloned(snapshot(source), tmp_path / "copy")
    assert second.copies == ()
    held = {file.path: file for file in live_files(snapshot(tmp_path / "copy").files())}
    assert set(held) == {f"{first.directory}/{name}" for name in ("a", "c", "d")}
    of_a, of_d = (held[f"{first.directory}/{name}"].deletion_vector for name in ("a", "d"))
    assert of_a
    assert of_d
    assert of_a.path_or_inline_dv == of_d.path_or_inline_dv
    assert (of_d.offset, of_d.cardinality) == (60, 7)
    assert held[f"{first.directory}/c"].deletion_vector is None
    assert len(second.removes) == 3
    assert second.metrics["numRemovedFiles"] == 3


def test_new_statistics_come_along_and_row_ids_are_the_clones_own(
    source: Path, tmp_path: Path
) -> None:
    write_commit(source, 1, add("a", stats=told(9)), add("b", stats=told(9)), add("c", stats=None))
    cloned(snapshot(source), tmp_path / "copy")
    write_commit(
        source,
        2,
        protocol("deletionVectors", "domainMetadata", "rowTracking"),
        metadata(
            configuration={
                "delta.enableRowTracking": "true",
                "delta.rowTracking.materializedRowIdColumnName": "_ids",
                "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
            }
        ),
        *(
            add(name, stats=told(9), baseRowId=100 + number, defaultRowCommitVersion=2)
            for number, name in enumerate("abc")
        ),
        add("d", stats=told(5), baseRowId=200, defaultRowCommitVersion=2),
    )
    files = cloned(snapshot(source), tmp_path / "copy")
    assert list(targets(files)) == ["d"]
    newest = snapshot(tmp_path / "copy")
    rows = newest.files(columns=["baseRowId", "stats", "defaultRowCommitVersion"]).to_pylist()
    ranges = sorted((row["baseRowId"], json.loads(row["stats"])["numRecords"]) for row in rows)
    assert [count for _, count in ranges] in ([9, 9, 9, 5], [5, 9, 9, 9])
    assert [first for first, _ in ranges] == [sum(n for _, n in ranges[:i]) for i in range(4)]
    assert {row["defaultRowCommitVersion"] for row in rows} == {1}
    names = newest.metadata.configuration
    hidden = "delta.rowTracking.materializedRowIdColumnName"
    assert names[hidden].startswith("_row-id-col-")
    cloned(snapshot(source), tmp_path / "copy")
    assert snapshot(tmp_path / "copy").metadata.configuration == names


def test_what_is_said_of_a_file_that_stays_comes_along(source: Path, tmp_path: Path) -> None:
    """And nothing is said again where nothing has changed, be it in another order."""
    write_commit(
        source,
        1,
        add("plain", stats=told()),
        add("none", stats=told(), tags={}),
        add("same", stats=told(), tags={"a": "1", "b": None}),
        add("tagged", stats=told()),
        add("other", stats=told(), tags={"a": "1"}),
        add("less", stats=told(), tags={"a": "1"}, clusteringProvider="liquid"),
        add("clustered", stats=told()),
    )
    cloned(snapshot(source), tmp_path / "copy")
    write_commit(
        source,
        2,
        add("none", stats=told()),
        add("same", stats=told(), tags={"b": None, "a": "1"}),
        add("tagged", stats=told(), tags={"a": "1"}),
        add("other", stats=told(), tags={"a": "2"}),
        add("less", stats=told()),
        add("clustered", stats=told(), clusteringProvider="liquid"),
    )
    files = cloned(snapshot(source), tmp_path / "copy")
    assert (files.copies, files.removes) == ((), ())
    renewed = {file.path.rpartition("/")[2]: file for file in files.adds}
    assert set(renewed) == {"tagged", "other", "less", "clustered"}
    assert not any(file.data_change for file in files.adds)
    held = {
        file.path.rpartition("/")[2]: (file.tags or None, file.clustering_provider)
        for file in live_files(snapshot(tmp_path / "copy").files())
    }
    assert held == {
        "plain": (None, None),
        "none": (None, None),
        "same": ({"a": "1", "b": None}, None),
        "tagged": ({"a": "1"}, None),
        "other": ({"a": "2"}, None),
        "less": (None, None),
        "clustered": (None, "liquid"),
    }
    again = cloned(snapshot(source), tmp_path / "copy")
    assert (again.copies, again.adds, again.removes) == ((), (), ())


@pytest.mark.parametrize(
    ("files", "strange"),
    [
        ([add("part-0", stats=told())], "part-0"),
        ([add("clone-x/part-0", stats=told())], "clone-x/part-0"),
        ([add("s3://else/clone", stats=told())], "s3://else/clone"),
    ],
)
def test_files_of_others_are_strange(
    source: Path, tmp_path: Path, files: list[dict[str, Any]], strange: str
) -> None:
    write_commit(source, 1, add("a", stats=told()))
    cloned(snapshot(source), tmp_path / "copy")
    assert find_foreign_file(snapshot(tmp_path / "copy")) is None
    write_commit(tmp_path / "copy", 1, *files)
    assert find_foreign_file(snapshot(tmp_path / "copy")) == strange


def test_deletion_vectors_of_others_are_strange(source: Path, tmp_path: Path) -> None:
    write_commit(source, 1, add("a", stats=told()))
    cloned(snapshot(source), tmp_path / "copy")
    (path,) = snapshot(tmp_path / "copy").files()["path"].to_pylist()
    changed = add(path, stats=told(), deletionVector={**VECTOR, "pathOrInlineDv": "q" * 20})
    write_commit(tmp_path / "copy", 1, remove(path), changed)
    assert find_foreign_file(snapshot(tmp_path / "copy")) == path


GOLDEN = [case["name"] for case in golden_manifest() if case["expect"] == "ok"]
NOT_WRITTEN = {
    "collations-preview-table": "collations-preview",
    "spark-variant-stable-feature-checkpoint": "variantType",
    "variant-stats-nested-no-checkpoint": "variantShredding-preview",
    "variant-stats-no-checkpoint": "variantShredding-preview",
    "variant-stats-state-reconstruction": "variantShredding-preview",
}
"""Tables with features that the engine doesn't write."""


@pytest.mark.parametrize("name", GOLDEN)
def test_any_golden_table_can_be_cloned(
    golden_case: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """From its first version that is there to its newest: as many files and rows, of equal bytes."""
    source, target = DeltaTable(str(golden_case(name))), tmp_path / "copy"
    if name in NOT_WRITTEN:
        with pytest.raises(UnsupportedFeatureError, match=NOT_WRITTEN[name]):
            cloned(source.snapshot(), target)
        return
    newest = source.snapshot()
    first = source.snapshot(newest.timeline.earliest_recreatable)
    # Of some tables the corpus has the log alone.
    whole = all(Path(uri).exists() for uri in (*first.file_uris(), *newest.file_uris()))
    for version in dict.fromkeys((first.version, newest.version)):
        files = cloned(source.snapshot(version), target, copies=whole)
    clone = snapshot(target)
    assert (clone.num_files, clone.size_in_bytes) == (newest.num_files, newest.size_in_bytes)
    assert (clone.num_rows, clone.schema) == (newest.num_rows, newest.schema)
    assert clone.metadata.partition_columns == newest.metadata.partition_columns
    assert files.metrics["sourceNumOfFiles"] == newest.num_files
    if whole:
        before, after = (
            sorted(Path(uri).read_bytes() for uri in table.file_uris()) for table in (newest, clone)
        )
        assert after == before
