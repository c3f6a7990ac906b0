"""Finding missing files: the requests to the store, and their number."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import ObjectNotFoundError, StorageError
from airflow_delta.engine.maintenance.table_files import missing_files as search
from airflow_delta.engine.maintenance.table_files.missing_files import (
    MAX_MISSING,
    find_missing_files,
)
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.local import LocalStorage
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import touch_files


def files(count: int) -> pa.Table:
    """Adds, each of them twice."""
    paths = [f"part={number % 7}/{number}" for number in range(count)] * 2
    columns = [array_of(paths, pa.string()), pa.nulls(2 * count, DELETION_VECTOR_TYPE)]
    return pa.Table.from_arrays(columns, names=list(FILE_KEY_COLUMNS))


def test_each_file_is_looked_up_once(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage(str(tmp_path)))
    touch_files(tmp_path, *(f"part={number % 7}/{number}" for number in range(20)))
    assert find_missing_files(files(20), FileAccess(storage)) == []
    assert (storage.count("head"), len(storage.calls)) == (20, 20)


def test_many_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LISTED_FROM", 20)
    storage = FaultyStorage(LocalStorage(str(tmp_path)))
    touch_files(tmp_path, *(f"part={number % 7}/{number}" for number in range(19)))
    assert find_missing_files(files(20), FileAccess(storage)) == ["part=5/19"]
    assert (storage.count("walk"), storage.count("head")) == (1, 1)


def test_the_search_ends_when_enough_is_missing(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage(str(tmp_path)))
    assert len(find_missing_files(files(3 * MAX_MISSING), FileAccess(storage))) == MAX_MISSING
    assert storage.count("head") == MAX_MISSING


def test_a_store_that_fails_is_not_one_that_lacks_the_file(tmp_path: Path) -> None:
    touch_files(tmp_path, "part=0/0")
    storage = FaultyStorage(LocalStorage(str(tmp_path)), Fault("head", how=How.FAIL))
    with pytest.raises(StorageError) as failed:
        find_missing_files(files(1), FileAccess(storage))
    assert not isinstance(failed.value, ObjectNotFoundError)
