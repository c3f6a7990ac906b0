"""Files that can't be: PROTOCOL.md, "Add File and Remove File"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import AddCdcFile
from tests.engine.transaction.prepare.attempts import attempt, file, table, tombstone
from tests.log_builder import add


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"size": -1}, r"add\.size of the file 'x': expected a number from 0 on, found -1"),
        ({"modification_time": -5}, r"add\.modificationTime of the file 'x': .* found -5"),
    ],
)
def test_sizes_and_times_are_not_below_zero(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    table(tmp_path, ())
    attempt(tmp_path, adds=(file("x", size=0, modification_time=0),))
    with pytest.raises(ConstraintViolationError, match=problem):
        attempt(tmp_path, adds=(file("a"), file("x", **fields), file("b")))


@pytest.mark.parametrize("path", ["p=50%/f", "a%zz", "a%ff", "%"])
def test_a_path_is_one_that_can_be_decoded(tmp_path: Path, path: str) -> None:
    table(tmp_path, ("changeDataFeed",), configuration={"delta.enableChangeDataFeed": "true"})
    attempt(tmp_path, adds=(file("p=50%25/f"), file("a b"), file("%C3%A4")))
    with pytest.raises(
        ConstraintViolationError, match=r"is no URI .* expected '%' to be written as"
    ):
        attempt(tmp_path, adds=(file("a"), file(path)))
    with pytest.raises(ConstraintViolationError, match="is no URI"):
        attempt(tmp_path, cdc=(AddCdcFile(path, {}, 1),))


def test_nor_are_those_of_change_data(tmp_path: Path) -> None:
    table(tmp_path, ("changeDataFeed",), configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(ConstraintViolationError, match=r"cdc\.size of the file '_change_data/c'"):
        attempt(tmp_path, cdc=(AddCdcFile("_change_data/c", {}, -1),))


def test_what_is_in_a_table_all_the_same_can_be_removed(tmp_path: Path) -> None:
    table(tmp_path, (), add("_delta_log/f", size=-1))
    attempt(tmp_path, removes=(tombstone("_delta_log/f", size=-1),))


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log/f",
        "_delta_log/_sidecars/f",
        "%5Fdelta_log/f",
        "%5fdelta%5flog/f",
        "./_delta_log/f",
        "{root}/_delta_log/f",
        "file:{root}/_delta_log/f",
        "file://{root}/%5Fdelta%5Flog/f",
    ],
)
def test_data_files_must_not_be_in_the_log(tmp_path: Path, path: str) -> None:
    table(tmp_path, ())
    path = path.format(root=tmp_path)
    with pytest.raises(ConstraintViolationError, match="lies in the table's log") as caught:
        attempt(tmp_path, adds=(file("a"), file(path)))
    assert repr(path) in caught.value.message


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log_/f",
        "_delta_logs",
        "a/_delta_log/f",
        "part=_delta_log/f",
        "%255Fdelta_log/f",
        "/elsewhere/_delta_log/f",
        "s3://b/_delta_log/f",
    ],
)
def test_what_is_called_like_it_is_none(tmp_path: Path, path: str) -> None:
    table(tmp_path, ())
    prepared = attempt(tmp_path, adds=(file(path),))
    assert [added.path for added in prepared.actions.adds] == [path]
