"""Operations that do what no operation may, so that the tests see that it is noticed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pyarrow.parquet as pq

from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from tests.attacks.fuzz.operations import Bench, Operation
from tests.attacks.fuzz.tables import SECRET

__all__ = ["PROBES"]


class _TalkativeError(DeltaError):
    """Errors shorten the texts that they are given; this one doesn't."""

    def __str__(self) -> str:
        return "x" * 100_000


def _outside(bench: Bench, name: str) -> str:
    return f"{bench.root}/../other/{name}"


def _raise(error: BaseException) -> Any:
    raise error


def _speak(_bench: Bench) -> Any:
    with urllib.request.urlopen("http://evil.example/", timeout=5) as response:
        return response.read()


def _swallow(_bench: Bench) -> Any:
    try:
        return len(b"x" * (4 << 30))
    except MemoryError as error:
        raise DeltaError("too large") from error


def _delete_outside(bench: Bench) -> Any:
    # Not by Python, whose audit hook would see it.
    ctypes.CDLL(None).unlink(_outside(bench, "secret.txt").encode())


def _deletes_inside(bench: Bench) -> Any:
    os.remove(f"{bench.root}/part=x/f.parquet")


def _bucket(bench: Bench) -> Storage:
    return open_storage(bench.root.rsplit("/", 2)[0], bench.options)


def _read_unnamed(bench: Bench) -> Any:
    return _bucket(bench).head("elsewhere/secret.txt")


def _delete_many(bench: Bench) -> Any:
    # A request for many deletes a single key as well.
    names = ["elsewhere/a.parquet", "elsewhere/b.parquet"]
    return _bucket(bench).delete([bench.root.rpartition("/")[2], *names])


def _print(bench: Bench) -> Any:
    bench.printed = "\x1b[31mred"


PROBES: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("probe: raises", lambda _: _raise(KeyError("x"))),
        Operation("probe: answers", lambda _: (0, frozenset())),
        Operation("probe: opens by Python", lambda b: os.open(_outside(b, "secret.txt"), os.O_RDONLY)),
        Operation("probe: opens by C++", lambda b: pq.read_table(_outside(b, "x.parquet"))),
        Operation("probe: opens the environment", lambda _: os.open("/proc/self/environ", os.O_RDONLY)),
        Operation("probe: deletes outside", _delete_outside),
        Operation("probe: starts a program", lambda _: subprocess.run([sys.executable, "-V"], check=False)),
        Operation("probe: speaks", _speak),
        Operation("probe: takes memory", lambda _: len(b"x" * (4 << 30))),
        Operation("probe: swallows a lack of memory", _swallow),
        Operation("probe: quotes", lambda _: _raise(DeltaError(f"found {SECRET}"))),
        Operation("probe: steers the terminal", _print),
        Operation("probe: talks much", lambda _: _raise(_TalkativeError("x"))),
        Operation("probe: changes the table", _deletes_inside),
        Operation("probe: deletes a live file", _deletes_inside, writes=True, deletes=lambda _: True),
        Operation("probe: crashes", lambda _: ctypes.string_at(0)),
        Operation("probe: reads an object", _read_unnamed),
        Operation("probe: deletes objects", _delete_many),
        Operation("probe: lists objects", lambda b: list(_bucket(b).walk("elsewhere"))),
        Operation("probe: writes an object", lambda b: _bucket(b).replace("elsewhere/x", b"x")),
        Operation("probe: never ends", lambda _: time.sleep(3600)),
    )
}  # fmt: skip
