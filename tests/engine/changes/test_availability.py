"""The change data feed must have been on, and the columns the same but for added ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ChangesNotAvailableError, UnsupportedFeatureError
from tests.engine.changes.logs import FEED_ON, PROTOCOL
from tests.log_builder import add, metadata, write_commit

ON, OFF = metadata(configuration=FEED_ON), metadata()


def table_of(root: Path, *history: list[dict[str, Any]]) -> DeltaTable:
    for version, actions in enumerate(history):
        write_commit(root, version, *actions, add(f"f{version}"))
    return DeltaTable(str(root))


def test_a_feed_turned_on_later_is_available_from_there_on(tmp_path: Path) -> None:
    table = table_of(tmp_path, [PROTOCOL, OFF], [], [], [ON], [])
    assert table.changes(3).files["path"].to_pylist() == ["f3", "f4"]
    with pytest.raises(ChangesNotAvailableError, match="in version 2 delta") as caught:
        table.changes(2)
    facts = caught.value
    assert (facts.start, facts.end, facts.version) == (2, 4, 2)


def test_a_feed_turned_off_inside_the_range_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path, [PROTOCOL, ON], [], [OFF], [ON])
    assert table.changes(0, 1).files.num_rows == 2
    assert table.changes(3).files.num_rows == 1
    with pytest.raises(ChangesNotAvailableError, match="in version 2") as caught:
        table.changes(0)
    assert caught.value.version == 2


def test_the_property_alone_binds_no_writer_of_version_7(tmp_path: Path) -> None:
    """Writer Requirements for AddCDCFile: only if the protocol lists the feature."""
    listed = dict(PROTOCOL["protocol"], writerFeatures=["deletionVectors"])
    table = table_of(tmp_path, [{"protocol": listed}, ON])
    with pytest.raises(ChangesNotAvailableError, match="protocol lacks changeDataFeed"):
        table.changes(0)


def test_writer_version_4_implies_the_feature(tmp_path: Path) -> None:
    versions = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    assert table_of(tmp_path, [versions, ON]).changes(0).files.num_rows == 1


def test_a_protocol_inside_the_range_that_we_lack_is_named(tmp_path: Path) -> None:
    newer = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["fromTheFuture"],
            "writerFeatures": ["fromTheFuture", "changeDataFeed"],
        }
    }
    table = table_of(tmp_path, [PROTOCOL, ON], [newer], [PROTOCOL])
    assert table.changes(2).files.num_rows == 1
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        table.changes(0)


def column(name: str, type_: Any = "long", **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}, **fields}


def schema(*columns: dict[str, Any]) -> dict[str, Any]:
    return metadata(configuration=FEED_ON, schema={"type": "struct", "fields": list(columns)})


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (schema(column("id")), "the column part was dropped or renamed"),
        (schema(column("ID"), column("part", "string")), "the column id was dropped or renamed"),
        (schema(column("id", "string"), column("part", "string")), "type from long to string"),
        (metadata(configuration=FEED_ON, partition_columns=["part"]), "partition columns changed"),
    ],
)
def test_other_changes_of_the_columns_are_refused_with_their_version(
    tmp_path: Path, later: dict[str, Any], reason: str
) -> None:
    table = table_of(tmp_path, [PROTOCOL, ON], [], [later], [])
    assert table.changes(0, 1).files.num_rows == 2
    assert table.changes(2).files.num_rows == 2
    with pytest.raises(ChangesNotAvailableError, match=f"in version 2 .*{reason}") as caught:
        table.changes(0)
    assert caught.value.version == 2


def test_a_change_that_was_taken_back_is_refused_all_the_same(tmp_path: Path) -> None:
    """The files in between lack the column's values, or have those of another column."""
    table = table_of(tmp_path, [PROTOCOL, ON], [schema(column("id"))], [ON])
    with pytest.raises(ChangesNotAvailableError, match="in version 1"):
        table.changes(0)


def test_other_properties_may_change(tmp_path: Path) -> None:
    other = metadata(configuration={**FEED_ON, "delta.appendOnly": "true"})
    assert table_of(tmp_path, [PROTOCOL, ON], [other]).changes(0).files.num_rows == 2
