"""Which files differ between two versions, compared with sets of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.snapshot.difference import compare_versions
from airflow_delta.engine.snapshot.snapshot import Snapshot
from tests.log_builder import add, remove, write_table


def keys(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """The sizes of the files, by path and deletion vector."""
    rows: list[dict[str, Any]] = snapshot.files().to_pylist()
    return {(row["path"], str(row["deletionVector"])): row["size"] for row in rows}


STATS = '{"numRecords":9}'


def vector(name: str) -> dict[str, Any]:
    stored = {"storageType": "u", "pathOrInlineDv": name, "offset": 4, "sizeInBytes": 40}
    return {**stored, "cardinality": 6}


def test_files_of_all_pairs_of_versions(tmp_path: Path) -> None:
    one, two = vector("ab^-aqEH.-t@S}K{vb[*k^"), vector("ab^-aqEH.-t@S}K{vb[*k~")
    commits = [
        [add("a", size=1, stats=STATS), add("b", size=20, stats=STATS)],
        [remove("a"), add("a", size=1, stats=STATS, deletionVector=one)],
        [add("c", size=300, stats=STATS)],
        [remove("a", deletionVector=one), add("a", size=1, stats=STATS, deletionVector=two)],
        [remove("b"), remove("c")],
    ]
    table = DeltaTable(str(write_table(tmp_path, *commits)))
    snapshots = [table.snapshot(version) for version in range(table.latest_version() + 1)]
    other_vectors = 0
    for before in snapshots:
        for after in snapshots:
            old, new = keys(before), keys(after)
            found = compare_versions(before, after)
            facts = found.to_dict()
            added, removed = new.keys() - old.keys(), old.keys() - new.keys()
            assert facts["files_added"]["files"] == len(added)
            assert facts["files_added"]["bytes"] == sum(new[key] for key in added)
            assert facts["files_removed"]["files"] == len(removed)
            assert facts["files_in_both"] == len(new.keys() & old.keys())
            same_path = {path for path, _ in added} & {path for path, _ in removed}
            assert facts["files_with_other_deletion_vector"] == len(same_path)
            rows = facts["files_added"]["rows"] - facts["files_removed"]["rows"]
            assert facts["rows"]["after"] - facts["rows"]["before"] == rows
            other_vectors += len(same_path)
    assert other_vectors > 0
