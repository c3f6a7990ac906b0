from __future__ import annotations

from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile, RemoveFile


def test_an_add_writes_nulls_of_partitions_but_no_absent_fields() -> None:
    add = AddFile("p%20q", {"a": None, "b": ""}, 1, 2, data_change=False)
    assert add.to_json() == {
        "path": "p%20q",
        "partitionValues": {"a": None, "b": ""},
        "size": 1,
        "modificationTime": 2,
        "dataChange": False,
    }


def test_an_add_keeps_zeroes() -> None:
    add = AddFile("p", {}, 0, 0, data_change=True, base_row_id=0, default_row_commit_version=0)
    written = add.to_json()
    assert (written["size"], written["baseRowId"], written["defaultRowCommitVersion"]) == (0, 0, 0)


def test_a_remove_distinguishes_missing_from_empty_metadata() -> None:
    assert "partitionValues" not in RemoveFile("p", data_change=True).to_json()
    extended = RemoveFile("p", data_change=True, extended_file_metadata=True, partition_values={})
    assert extended.to_json()["partitionValues"] == {}


def test_a_remove_repeats_the_vector_of_its_add() -> None:
    vector = DeletionVectorDescriptor("i", "wi5b=", None, 4, 1)
    remove = RemoveFile("p", data_change=True, deletion_vector=vector)
    assert RemoveFile.from_json(remove.to_json(), "x").deletion_vector == vector


def test_a_change_file_never_changes_data() -> None:
    assert AddCdcFile("_change_data/p", {}, 1).to_json()["dataChange"] is False
