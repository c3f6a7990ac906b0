"""When a commit needs change data files: PROTOCOL.md, "Add CDC File", "Change Data Files"."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.engine.transaction.prepare.attempts import (
    attempt,
    counted,
    file,
    table,
    tombstone,
    write,
)
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


SMALL = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 5)
LARGE = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 50, 40, 7)


def masked_table(root: Path, vector: DeletionVectorDescriptor | None) -> Path:
    masked = add("f", stats=counted(30))
    if vector:
        masked = add("f", stats=counted(30), deletionVector=vector.to_json())
    on = {**ON, "delta.enableDeletionVectors": "true"}
    return table(root, ("changeDataFeed", "deletionVectors"), masked, add("g"), configuration=on)


def pair(before: DeletionVectorDescriptor | None, after: DeletionVectorDescriptor | None) -> Any:
    return {
        "removes": (tombstone("f", deletion_vector=before),),
        "adds": (file("f", deletion_vector=after, stats=counted(30)),),
    }


@pytest.mark.parametrize(
    ("before", "after", "others", "fits"),
    [
        # Rows are deleted: with more of them …
        (None, SMALL, {}, True),
        (SMALL, LARGE, {}, True),
        (SMALL, LARGE, {"removes": (tombstone("g"),)}, True),
        # … but not with new ones, which may be their new values.
        (SMALL, LARGE, {"adds": (file("new"),)}, False),
        (SMALL, LARGE, {"adds": (file("new"),), "enforced": ["changeDataFeed"]}, True),
        # Rows come back.
        (SMALL, None, {}, True),
        (LARGE, SMALL, {"adds": (file("new"),)}, True),
        (LARGE, SMALL, {"removes": (tombstone("g"),)}, False),
        # Some of both.
        (SMALL, replace(SMALL, offset=90), {}, False),
    ],
)
def test_a_deletion_vector_that_grows_deletes_rows(
    tmp_path: Path,
    before: DeletionVectorDescriptor | None,
    after: DeletionVectorDescriptor | None,
    others: dict[str, Any],
    fits: bool,
) -> None:
    masked_table(tmp_path, before)
    actions = pair(before, after)
    for kind in ("adds", "removes"):
        actions[kind] += others.get(kind, ())
    enforced = others.get("enforced", ())
    if fits:
        attempt(tmp_path, **actions, enforced=enforced)
    else:
        with pytest.raises(ConstraintViolationError, match="commit the change data files as well"):
            attempt(tmp_path, **actions, enforced=enforced)
        attempt(tmp_path, **actions, cdc=(CHANGES,))


def test_readers_of_changes_see_just_the_rows_that_such_a_commit_deletes(tmp_path: Path) -> None:
    masked_table(tmp_path, SMALL)
    write(tmp_path, attempt(tmp_path, **pair(SMALL, LARGE)))
    changes = DeltaTable(str(tmp_path)).changes(1, 1).files.to_pylist()
    vectors = ("selectionVector", "deletionVector")
    cardinalities = {
        c["_change_type"]: [c[name]["cardinality"] for name in vectors] for c in changes
    }
    # Those that are in the new vector and not in the old one; the other way round there are none.
    assert cardinalities == {"delete": [7, 5], "insert": [5, 7]}


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
