"""When a commit needs change data files: PROTOCOL.md, "Add CDC File", "Change Data Files"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import AddCdcFile
from tests.engine.transaction.prepare.attempts import attempt, file, table, tombstone, write
from tests.log_builder import add

ON = {"delta.enableChangeDataFeed": "true"}
CHANGES = AddCdcFile("_change_data/cdc-0.parquet", {}, 7)
UPDATE: dict[str, Any] = {"removes": (tombstone("old"),), "adds": (file("new"),)}


def feed_table(root: Path) -> Path:
    return table(root, ("changeDataFeed",), add("old"), configuration=ON)


def test_a_commit_that_may_have_updated_rows_needs_change_data_files(tmp_path: Path) -> None:
    feed_table(tmp_path)
    with pytest.raises(ConstraintViolationError, match="commit the change data files as well"):
        attempt(tmp_path, **UPDATE)
    written = write(tmp_path, attempt(tmp_path, **UPDATE, cdc=(CHANGES,)))
    assert written["cdc"] == [
        {
            "path": "_change_data/cdc-0.parquet",
            "partitionValues": {},
            "size": 7,
            "dataChange": False,
        }
    ]


def test_a_writer_may_declare_that_it_updated_none(tmp_path: Path) -> None:
    feed_table(tmp_path)
    assert not attempt(tmp_path, **UPDATE, enforced=["changeDataFeed"]).actions.cdc


@pytest.mark.parametrize(
    "actions",
    [
        {"adds": (file("new"),)},
        {"removes": (tombstone("old"),)},
        # Rearranged: nothing was changed.
        {
            "adds": (file("new", data_change=False),),
            "removes": (tombstone("old", data_change=False),),
        },
    ],
)
def test_inserts_deletes_and_compactions_need_none(tmp_path: Path, actions: Any) -> None:
    feed_table(tmp_path)
    attempt(tmp_path, **actions)


@pytest.mark.parametrize(
    ("features", "configuration"),
    [(("changeDataFeed",), {}), (("domainMetadata",), ON)],
    ids=["off", "unsupported"],
)
def test_a_table_without_the_feed_gets_none(
    tmp_path: Path, features: tuple[str, ...], configuration: dict[str, str]
) -> None:
    table(tmp_path, features, add("old"), configuration=configuration)
    with pytest.raises(ConstraintViolationError, match="the table keeps no change data"):
        attempt(tmp_path, **UPDATE, cdc=(CHANGES,))
    attempt(tmp_path, **UPDATE)


def test_change_data_files_have_a_folder_of_their_own(tmp_path: Path) -> None:
    feed_table(tmp_path)
    with pytest.raises(ConstraintViolationError, match="outside of the folder _change_data/"):
        attempt(tmp_path, **UPDATE, cdc=(AddCdcFile("cdc-0.parquet", {}, 7),))
    elsewhere = AddCdcFile("s3://bucket/table/_change_data/x", {}, 7)
    attempt(tmp_path, **UPDATE, cdc=(elsewhere,))
