"""Copies as they are left at a place, made without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake import DeltaTable as Peer

from airflow_delta.copies.marker import MARKER, CopyMarker
from airflow_delta.copies.source import copy_app_id
from airflow_delta.engine import DeltaTable

RUN = "clone-00000000-0000-0000-0000-000000000000"
DELETION = "00000000-0000-0000-0000-000000000001"
LONG_AGO, NEVER = 1, None
LATER = 10**14


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
    source_id = DeltaTable(str(lake / "sales")).snapshot().metadata.id
    mark = CommitProperties(app_transactions=[Transaction(copy_app_id(source_id), 1)])
    write_deltalake(place, pa.table({"id": [1]}), commit_properties=mark)
    (file,) = place.glob("part-*")
    (place / RUN).mkdir()
    file.rename(place / RUN / file.name)
    log = place / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"path":"part', f'"path":"{RUN}/part'))
    assert Peer(place).to_pyarrow_table().num_rows == 1
    own = {"target_id": DeltaTable(str(place)).snapshot().metadata.id, "committed_version": 0}
    return marked(lake, name, expires=expires, **{"format": "delta", **own, **more})


def contents(place: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in place.rglob("*") if file.is_file()}
