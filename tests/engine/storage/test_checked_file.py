"""Files whose failures are the contract's, also where Arrow reads them."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.checked_file import CheckedFile
from airflow_delta.engine.storage.generic import GenericStorage
from airflow_delta.engine.storage.local import LocalStorage


class Failing(io.BytesIO):
    """A file on a disk that fails."""

    def read(self, *_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


def local(root: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    (root / "log").mkdir(exist_ok=True)
    for path in ("log/x", "x"):
        (root / path).write_bytes(bytes(1000))

    def failing(descriptor: int, *_: Any) -> Failing:
        os.close(descriptor)
        return Failing(bytes(1000))

    monkeypatch.setattr(os, "fdopen", failing)
    return LocalStorage(str(root))


def generic(root: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    files = fsspec.filesystem("file")
    monkeypatch.setattr(files, "open", lambda *_: Failing(bytes(1000)))
    return GenericStorage("test://t", files, str(root))


@pytest.mark.parametrize("make", [local, generic])
def test_a_disk_that_fails_is_a_failure_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Storage]
) -> None:
    with (
        make(tmp_path, monkeypatch).open("log/x") as file,
        pytest.raises(StorageError, match=r"'log/x' failed: .*Input/output error") as caught,
    ):
        file.read(1)
    assert (caught.value.path, caught.value.operation) == ("log/x", "read")
    # Not only for us, but through Arrow, to which an OSError may be damage.
    with make(tmp_path, monkeypatch).open("x") as file, pytest.raises(StorageError):
        pq.read_metadata(file)


def test_it_reads_and_closes_the_other_file(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(100))})
    pq.write_table(table, tmp_path / "t.parquet")
    storage = LocalStorage(str(tmp_path))
    with storage.open("t.parquet") as file:
        assert pq.read_table(file) == table
        file.seek(0)
        assert file.read1(4) == b"PAR1"
        with pytest.raises(ValueError, match="before the start"):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_the_other_file_is_closed_too() -> None:
    inner = io.BytesIO(b"abc")
    with CheckedFile(inner, lambda: LocalStorage("/")._translate_errors("read", "x")) as file:
        assert file.read() == b"abc"
        assert not inner.closed
    assert file.closed
    assert inner.closed
