"""Expired copies go, and nothing else does."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.hooks.copy_expiry import delete_expired_copies
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.spark.copy_marker import MARKER, CopyMarker
from tests.airflow.test_operators import context
from tests.conftest import write_sales

RUN = "clone-00000000-0000-0000-0000-000000000000"
LONG_AGO, NEVER = 1, None
LATER = 10**14


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with the table ``sales``."""
    write_sales(tmp_path / "sales", version=1)
    return tmp_path


def marked(lake: Path, name: str, *, expires: int | None, **more: Any) -> Path:
    """Put a marker at a place."""
    table_id = DeltaTable(str(lake / "sales")).snapshot().metadata.id
    place = lake / name
    told: Mapping[str, Any] = {
        "table_id": table_id,
        "version": 1,
        "num_files": 1,
        "target_uri": str(place),
        **more,
    }
    place.mkdir(exist_ok=True)
    marker = CopyMarker(str(lake / "sales"), made_at_ms=0, expires_at_ms=expires, **told)
    (place / MARKER).write_text(marker.to_json())
    return place


def files_copy(lake: Path, name: str, *, expires: int | None, **more: Any) -> Path:
    """A copy as Parquet files, as Spark leaves it on a file system."""
    place = marked(lake, name, expires=expires, **more)
    (place / "part-00000-x.parquet").write_bytes(b"rows")
    (place / ".part-00000-x.parquet.crc").write_bytes(b"sum")
    return place


def delta_copy(lake: Path, name: str, *, expires: int | None, **more: Any) -> Path:
    """A clone of one version."""
    place = lake / name
    write_deltalake(place, pa.table({"id": [1]}))
    (file,) = place.glob("part-*")
    (place / RUN).mkdir()
    file.rename(place / RUN / file.name)
    log = place / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"path":"part', f'"path":"{RUN}/part'))
    assert Peer(place).to_pyarrow_table().num_rows == 1
    return marked(
        lake, name, expires=expires, **{"format": "delta", "committed_version": 0, **more}
    )


def deleted(lake: Path, target: str = "new") -> list[str]:
    found = delete_expired_copies(
        DeltaHook(), table_uri=str(lake / "sales"), target_uri=str(lake / target)
    )
    assert all(not Path(place).exists() for place in found)
    return sorted(Path(place).name for place in found)


def contents(place: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def test_expired_copies_go_and_others_stay(lake: Path) -> None:
    files_copy(lake, "old_files", expires=LONG_AGO)
    delta_copy(lake, "old_table", expires=LONG_AGO)
    files_copy(lake, "new", expires=LONG_AGO)
    stay = [
        files_copy(lake, "young", expires=LATER),
        files_copy(lake, "kept", expires=NEVER),
        files_copy(lake, "other_source", expires=LONG_AGO, table_id="another"),
        delta_copy(lake, "kept_table", expires=NEVER),
        lake / "sales",
        lake / "new",
    ]
    nested = lake / "deeper"
    nested.mkdir()
    shutil.copytree(lake / "old_files", nested / "old_files")
    (lake / "broken").mkdir()
    (lake / "broken" / MARKER).write_text("{")
    before = [contents(place) for place in (*stay, nested, lake / "broken")]
    assert deleted(lake) == ["old_files", "old_table"]
    assert [contents(place) for place in (*stay, nested, lake / "broken")] == before
    assert deleted(lake) == []


def test_a_copy_that_holds_more_than_was_copied_stays(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (files_copy(lake, "file", expires=LONG_AGO) / "notes.txt").write_text("mine")
    (files_copy(lake, "part", expires=LONG_AGO) / "part-00001-y.parquet").write_text("mine")
    inside = files_copy(lake, "inside", expires=LONG_AGO) / "theirs"
    write_deltalake(inside, pa.table({"id": [1]}))
    write_deltalake(
        delta_copy(lake, "appended", expires=LONG_AGO), pa.table({"id": [2]}), mode="append"
    )
    # Removed again: a newer version all the same, though all files are those of the copy.
    Peer(delta_copy(lake, "emptied", expires=LONG_AGO)).delete()
    write_deltalake(delta_copy(lake, "nested", expires=LONG_AGO) / "t", pa.table({"id": [2]}))
    shutil.rmtree(delta_copy(lake, "logless", expires=LONG_AGO) / "_delta_log")
    places = ("file", "part", "inside", "appended", "emptied", "nested", "logless")
    before = [contents(lake / name) for name in places]
    with caplog.at_level(logging.WARNING):
        assert deleted(lake) == []
    assert [contents(lake / name) for name in places] == before
    for name, reason in {
        "file": "notes.txt, which no copy has written",
        "part": "it holds 2 files, and the copy wrote 1",
        "inside": "theirs/",
        "emptied": "its newest version is 1, and the copy is 0",
        "nested": "t/",
        "logless": "its log is gone",
    }.items():
        assert any(f"/{name} stays" in line and reason in line for line in caplog.messages), name


def test_links_are_not_followed(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(files_copy(lake, "real", expires=LONG_AGO), elsewhere / "copy")
    (lake / "linked").symlink_to(elsewhere / "copy")
    (elsewhere / "data").mkdir()
    (elsewhere / "data" / "part-1").write_text("theirs")
    holding = files_copy(lake, "holding", expires=LONG_AGO)
    (holding / "part-00000-x.parquet").unlink()
    (holding / "part-00000-x.parquet").symlink_to(elsewhere / "data" / "part-1")
    # The target by another name.
    (lake / "current").symlink_to(lake / "real")
    before = contents(elsewhere)
    assert deleted(lake, target="current") == ["holding"]
    assert contents(elsewhere) == before
    assert (lake / "real").exists()
    assert (lake / "linked").exists()


def test_a_copy_of_a_copy_is_somebody_elses(lake: Path) -> None:
    """Whoever has made it by other means hasn't asked for it to be deleted."""
    shutil.copytree(files_copy(lake, "sales_1", expires=LONG_AGO), lake / "precious")
    files_copy(lake, "unsaid", expires=LONG_AGO, target_uri=None)
    files_copy(lake, "far", expires=LONG_AGO, target_uri="s3://else/far")
    # By another name of the same place.
    (lake / "link").symlink_to(lake)
    files_copy(lake, "linked", expires=LONG_AGO, target_uri=str(lake / "link" / "linked"))
    assert deleted(lake) == ["linked", "sales_1"]
    assert {path.name for path in lake.iterdir()} >= {"precious", "unsaid", "far"}


def test_a_table_inside_of_a_copy_is_not_deleted_with_it(lake: Path) -> None:
    outer = files_copy(lake, "outer", expires=LONG_AGO)
    shutil.move(lake / "sales", outer / "sales")
    found = delete_expired_copies(
        DeltaHook(), table_uri=str(outer / "sales"), target_uri=str(lake / "new")
    )
    assert found == []
    assert DeltaTable(str(outer / "sales")).exists()


@pytest.mark.parametrize("kind", [files_copy, delta_copy])
def test_a_deletion_that_is_broken_off_goes_on(
    lake: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Whichever change of the store fails; and what is left never looks like a copy."""
    delete, replace, left = LocalStorage.delete, LocalStorage.replace, [0]

    def stepwise(original: Any) -> Any:
        def wrapped(storage: LocalStorage, *arguments: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                if original is delete and (paths := list(*arguments)):
                    delete(storage, paths[:1])
                raise StorageError("the store has failed")
            original(storage, *arguments)

        return wrapped

    monkeypatch.setattr(LocalStorage, "delete", stepwise(delete))
    monkeypatch.setattr(LocalStorage, "replace", stepwise(replace))
    for steps in range(5):
        left[0] = 100
        place = kind(lake, f"old{steps}", expires=LONG_AGO)
        left[0] = steps
        done = deleted(lake)
        if done:
            break
        left[0] = 100
        if not (place / MARKER).exists():
            assert not contents(place), "the marker goes last"
            continue
        if steps:
            assert json.loads((place / MARKER).read_text())["deleting"]
        assert deleted(lake) == [place.name]
    assert steps == 4, "the mark, the log, the data, the marker"


def test_a_run_makes_its_copy_and_deletes_those_that_have_expired(lake: Path) -> None:
    """With a real job."""
    files_copy(lake, "sales_1", expires=LONG_AGO)
    operator = TimeTravelSnapshotOperator(
        task_id="copy",
        table_uri=str(lake / "sales"),
        target_uri=str(lake / "sales_2"),
        expire_after="P7D",
    )
    told = operator.execute(context())
    assert told["deleted_copies"] == [str(lake / "sales_1")]
    marker = CopyMarker.from_json((lake / "sales_2" / MARKER).read_text())
    assert (marker.made_at_ms or 0) + 7 * 86_400_000 == marker.expires_at_ms
    assert told["expires_at"] == marker.expires_at
    assert sorted(path.name for path in lake.iterdir()) == ["sales", "sales_2"]
    # A retry finds the copy, and when it expires.
    again = operator.execute(context())
    assert (again["expires_at"], again["deleted_copies"]) == (marker.expires_at, [])


def test_an_expiry_without_a_copy_makes_no_sense(lake: Path) -> None:
    operator = TimeTravelSnapshotOperator(
        task_id="pin", table_uri=str(lake / "sales"), expire_after="P7D"
    )
    with pytest.raises(ValueError, match="expire_after='P7D' is given without target_uri"):
        operator.execute(context())
