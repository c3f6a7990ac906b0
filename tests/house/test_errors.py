"""Errors cross processes, so they must survive pickling with all their facts."""

from __future__ import annotations

import inspect
import pickle

import pytest

from airflow_delta.engine import errors

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.DeltaError)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_pickling(cls: type[errors.DeltaError]) -> None:
    error = cls("commit 7 is broken; restore it", table="s3://b/t", version=7, path="x.json")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == "s3://b/t: commit 7 is broken; restore it"
    assert (copy.version, copy.path, copy.table) == (7, "x.json", "s3://b/t")


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree_in_the_docstring_names_every_error(cls: type[errors.DeltaError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__name__ in errors.__all__


def test_a_fact_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no fact 'version'"):
        _ = errors.DeltaError("x").version


def test_the_former_name_of_a_missing_commit_store_still_catches_it() -> None:
    with pytest.raises(errors.NoBooksError):
        raise errors.CommitStoreMissingError("the database is empty")
