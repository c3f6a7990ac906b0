"""The list of a copy's files to be deleted lies beside them: one that others wrote deletes nothing."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.copies.deletion_list import DELETING, LEASE_MS, DeletionList
from airflow_delta.copies.marker import MARKER, CopyMarker
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.hooks.copy_expiry import ExpiredCopies
from airflow_delta.hooks.delta import DeltaHook
from tests.conftest import write_sales
from tests.spark.copy.made_copies import (
    DELETION,
    LATER,
    LONG_AGO,
    contents,
    delta_copy,
    files_copy,
    marked,
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with the table ``sales``."""
    write_sales(tmp_path / "sales", version=1)
    return tmp_path


def deleted(lake: Path) -> list[str]:
    """The names of the copies that go beside a copy to ``new``."""
    found = ExpiredCopies(
        DeltaHook(), table_uri=str(lake / "sales"), target_uri=str(lake / "new")
    ).delete()
    return sorted(Path(place).name for place in found)


def forge(place: Path, marker: CopyMarker | None = None) -> None:
    """Say of all files at a place that their deletion was decided an hour ago."""
    marker = marker or CopyMarker.from_json((place / MARKER).read_bytes())
    files = tuple(info for info in LocalStorage(str(place)).walk("") if info.path != MARKER)
    forged = DeletionList(DELETION, now_ms() - LEASE_MS, True, marker, files)
    (place / DELETING).write_bytes(forged.to_json())


def table_beside(lake: Path, name: str) -> Path:
    write_deltalake(lake / name, pa.table({"id": [1, 2]}))
    return lake / name


def own(place: Path) -> dict[str, Any]:
    """What the marker of a Delta copy says of a table."""
    newest = DeltaTable(str(place)).snapshot()
    return {"target_id": newest.metadata.id, "committed_version": newest.version}


def marker_beside(lake: Path, name: str, **more: Any) -> CopyMarker:
    """A marker that isn't at the place itself."""
    made = marked(lake, f"{name}-marker", expires=LONG_AGO, target_uri=str(lake / name), **more)
    marker = CopyMarker.from_json((made / MARKER).read_bytes())
    shutil.rmtree(made)
    return marker


def plain_table(lake: Path) -> str:
    place = table_beside(lake, "victim")
    forge(place, marker_beside(lake, "victim", format="delta", **own(place)))
    return "its _airflow_delta_copy.json is gone, and it holds _delta_log/"


def plain_table_with_a_marker(lake: Path) -> str:
    place = table_beside(lake, "victim")
    marked(lake, "victim", expires=LONG_AGO, format="delta", **own(place))
    forge(place)
    return "it holds part-"


def table_as_files(lake: Path) -> str:
    marked(lake, table_beside(lake, "victim").name, expires=LONG_AGO, num_files=100)
    forge(lake / "victim")
    return "it holds _delta_log/"


def empty_table(lake: Path) -> str:
    place = lake / "victim"
    write_deltalake(place, pa.table({"id": pa.array([], pa.int64())}))
    marked(lake, "victim", expires=LONG_AGO, format="delta", **own(place))
    forge(place)
    return "its log doesn't record that it is a copy"


def live_copy(lake: Path) -> str:
    forge(delta_copy(lake, "victim", expires=LATER))
    return "it hasn't expired"


def live_copy_by_another_marker(lake: Path) -> str:
    place = delta_copy(lake, "victim", expires=LATER)
    marker = CopyMarker.from_json((place / MARKER).read_bytes())
    forge(place, replace(marker, expires_at_ms=LONG_AGO))
    return "is of another copy than its"


def copy_that_was_appended_to(lake: Path) -> str:
    place = delta_copy(lake, "victim", expires=LONG_AGO)
    Peer(place).delete()
    forge(place)
    return "its newest version is 1, and the copy is 0"


def copy_that_is_another_table(lake: Path) -> str:
    forge(delta_copy(lake, "victim", expires=LONG_AGO, target_id="another"))
    return "and the copy was another"


def file_of_a_person(lake: Path) -> str:
    place = delta_copy(lake, "victim", expires=LONG_AGO)
    (place / "_delta_log" / "thesis.docx").write_text("mine")
    forge(place)
    return "it holds _delta_log/thesis.docx, which no copy has written"


def more_files_than_were_copied(lake: Path) -> str:
    place = files_copy(lake, "victim", expires=LONG_AGO)
    (place / "part-mine").write_text("mine")
    forge(place)
    return "it holds 2 files, and the copy wrote 1"


def unknown_format(lake: Path) -> str:
    place = files_copy(lake, "victim", expires=LONG_AGO, format="anything")
    forge(place)
    return "no copy has the format 'anything'"


def link_to_another_table(lake: Path) -> str:
    outside = table_beside(lake, "outside")
    place = delta_copy(lake, "victim", expires=LONG_AGO)
    os.symlink(outside, place / "clone-link")
    forge(place)
    return "it holds clone-link, which isn't a regular file"


@pytest.mark.parametrize(
    "attack",
    [
        plain_table,
        plain_table_with_a_marker,
        table_as_files,
        empty_table,
        live_copy,
        live_copy_by_another_marker,
        copy_that_was_appended_to,
        copy_that_is_another_table,
        file_of_a_person,
        more_files_than_were_copied,
        unknown_format,
        link_to_another_table,
    ],
)
def test_a_decided_list_is_believed_no_more_than_any(
    lake: Path, caplog: pytest.LogCaptureFixture, attack: Callable[[Path], str]
) -> None:
    reason = attack(lake)
    before = contents(lake)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert contents(lake) == before
    assert any("victim' is kept" in line and reason in line for line in caplog.messages)


@pytest.mark.parametrize("make", [files_copy, delta_copy])
@pytest.mark.parametrize("lost", ["nothing", "log", "newest commit", "data", "all"])
def test_a_deletion_that_was_broken_off_goes_on(lake: Path, make: Any, lost: str) -> None:
    """What a killed run has left may be any part of the log, and then of the data."""
    place = make(lake, "old", expires=LONG_AGO)
    log = place / "_delta_log"
    if make is delta_copy:
        Peer(place).create_checkpoint()
    forge(place)
    files = [path for path in place.rglob("*") if path.is_file()]
    own_files = [place / MARKER, place / DELETING]
    gone = {
        "nothing": [],
        "log": [path for path in files if log in path.parents],
        "newest commit": [path for path in files if path.name == f"{0:020}.json"],
        "data": [path for path in files if path not in own_files],
        "all": [path for path in files if path != place / DELETING],
    }[lost]
    for path in gone:
        path.unlink()
    assert deleted(lake) == ["old"]
    assert not place.exists()


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("id", "../../victim"),
        ("id", 7),
        ("id", "{00000000-0000-0000-0000-000000000001}"),
        ("decided", 1),
        ("decided", "true"),
        ("begun_at", 0),
    ],
)
def test_a_list_of_another_form_is_none(
    lake: Path, caplog: pytest.LogCaptureFixture, fact: str, value: object
) -> None:
    place = files_copy(lake, "victim", expires=LONG_AGO)
    forge(place)
    first, rest = (place / DELETING).read_text().split("\n", 1)
    (place / DELETING).write_text(f"{json.dumps({**json.loads(first), fact: value})}\n{rest}")
    before = contents(lake)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert contents(lake) == before
    assert any(f"{DELETING} can't be read" in line for line in caplog.messages)


def test_a_list_with_a_path_that_leaves_the_copy_is_none(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = files_copy(lake, "victim", expires=LONG_AGO)
    forge(place)
    with (place / DELETING).open("a") as file:
        file.write('["../sales/_delta_log/00000000000000000000.json", 1, 1]\n')
    before = contents(lake)
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert contents(lake) == before
    assert any(f"{DELETING} can't be read" in line for line in caplog.messages)
