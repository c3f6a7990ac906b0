"""Values that readers of the log couldn't read: PROTOCOL.md, "Actions"."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Txn,
)
from tests.engine.transaction.prepare.attempts import (
    VECTOR,
    attempt,
    counted,
    file,
    table,
    tombstone,
    write,
)
from tests.log_builder import add

INTEGER = "expected a 64-bit integer"
TEXT = "expected a string"
FLAG = "expected true or false"


def refuse(root: Path, match: str, **actions: Any) -> None:
    with pytest.raises(ConstraintViolationError, match=match):
        attempt(root, **actions)


@pytest.mark.parametrize("version", ["7", 7.0, True, 2**63, -(2**63) - 1, None])
def test_a_transaction_has_a_number(tmp_path: Path, version: Any) -> None:
    table(tmp_path, ())
    refuse(tmp_path, f"txn.version: {INTEGER}.*'app'", transactions=(Txn("app", version),))


@pytest.mark.parametrize("version", [-(2**63), -1, 0, 2**63 - 1])
def test_every_64_bit_integer_is_a_number(tmp_path: Path, version: int) -> None:
    table(tmp_path, ())
    write(tmp_path, attempt(tmp_path, transactions=(Txn("app", version),)))
    assert DeltaTable(str(tmp_path)).snapshot().transactions["app"].version == version


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (
            {"size": "1"},
            rf'add\.size: {INTEGER}, found the string "1" \(in the add action of \'x\'',
        ),
        ({"size": 1.5}, rf"add\.size: {INTEGER}, found the number 1\.5"),
        ({"size": None}, rf"add\.size: {INTEGER}, found nothing"),
        ({"modification_time": 1e12}, rf"add\.modificationTime: {INTEGER}"),
        ({"modification_time": 2**63}, rf"add\.modificationTime: {INTEGER}"),
        ({"modification_time": True}, rf"add\.modificationTime: {INTEGER}"),
        ({"data_change": 1}, rf"add\.dataChange: {FLAG}, found the number 1"),
        ({"data_change": None}, rf"add\.dataChange: {FLAG}, found nothing"),
        ({"partition_values": None}, r"add\.partitionValues: expected an object"),
        ({"partition_values": [("part", "1")]}, r"add\.partitionValues: found \[\('part', '1'\)\]"),
        ({"partition_values": {"part": 5}}, rf"add\.partitionValues\['part'\]: {TEXT}"),
        ({"partition_values": {5: "part"}}, r"add\.partitionValues: found \{5: 'part'\}"),
        ({"tags": {"a": 1}}, rf"add\.tags\['a'\]: {TEXT}"),
        ({"tags": "a"}, r"add\.tags: expected .*, found the str 'a'"),
        ({"stats": {"numRecords": 1}}, rf"add\.stats: {TEXT}, found the object"),
        ({"stats": "{oops"}, r"add\.stats of the file 'x': expected a JSON object, found '{oops'"),
        ({"stats": "[]"}, "expected a JSON object"),
        ({"stats": "null"}, "expected a JSON object"),
        ({"stats": '{"a":"\ud800"}'}, "expected a JSON object"),
        ({"base_row_id": "0"}, rf"add\.baseRowId: {INTEGER}"),
        ({"deletion_vector": VECTOR.to_json()}, r"add\.deletionVector: expected .* own type"),
        (
            {"deletion_vector": replace(VECTOR, cardinality=1.0)},
            rf"add\.deletionVector\.cardinality: {INTEGER}",
        ),
        (
            {"deletion_vector": replace(VECTOR, storage_type="x")},
            r"add\.deletionVector\.storageType",
        ),
    ],
)
def test_a_file_says_all_of_it_in_the_right_types(
    tmp_path: Path, fields: dict[str, Any], match: str
) -> None:
    table(tmp_path, ())
    # Among others, of which the first are sound.
    others = [file(f"f{number}", stats=counted(1)) for number in range(3)]
    refuse(tmp_path, match, adds=(*others, file("x", **fields), file("y")))


@pytest.mark.parametrize("broken", ["{oops", "[]", '{"a":1}{"b":2}'])
@pytest.mark.parametrize("others", [0, 63, 64, 500])
def test_one_bad_text_among_many_is_found(tmp_path: Path, others: int, broken: str) -> None:
    table(tmp_path, ())
    adds = [file(f"f{number}", stats=counted(number)) for number in range(others)]
    attempt(tmp_path, adds=(*adds, file("untold"), file("spaced", stats=' {"a":\n1} ')))
    adds.insert(others // 2, file("x", stats=broken))
    refuse(tmp_path, "of the file 'x': expected a JSON object", adds=tuple(adds))


@pytest.mark.parametrize("path", [None, "", Path("x"), b"x"])
def test_a_file_has_a_path(tmp_path: Path, path: Any) -> None:
    table(tmp_path, ("changeDataFeed",))
    refuse(tmp_path, r"add\.path: expected", adds=(file(path),))
    refuse(tmp_path, r"remove\.path: expected", removes=(tombstone(path),))
    refuse(tmp_path, r"cdc\.path: expected", cdc=(AddCdcFile(path, {}, 1),))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"deletion_timestamp": 1.5}, rf"remove\.deletionTimestamp: {INTEGER}"),
        ({"deletion_timestamp": "1"}, rf"remove\.deletionTimestamp: {INTEGER}"),
        ({"size": 1.5}, rf"remove\.size: {INTEGER}"),
        ({"data_change": None}, rf"remove\.dataChange: {FLAG}"),
    ],
)
def test_so_does_a_removed_one(tmp_path: Path, fields: dict[str, Any], match: str) -> None:
    table(tmp_path, (), add("old"))
    refuse(tmp_path, match, removes=(tombstone("old", **fields),))


@pytest.mark.parametrize("stats", ["{oops", "[]", ""])
def test_a_file_goes_as_it_stands_whatever_its_statistics(tmp_path: Path, stats: str) -> None:
    table(tmp_path, (), add("old", stats=stats))
    attempt(tmp_path, removes=(tombstone("old", stats=stats),))


def test_an_empty_text_of_statistics_is_none(tmp_path: Path) -> None:
    table(tmp_path, ())
    attempt(tmp_path, adds=(file("x", stats=""), file("y", stats=counted(1))))


@pytest.mark.parametrize("configuration", [{"a": 1}, None, 5])
def test_a_domain_has_a_text(tmp_path: Path, configuration: Any) -> None:
    table(tmp_path, ("domainMetadata",))
    domain = DomainMetadata("mine", configuration)
    refuse(tmp_path, rf"domainMetadata\.configuration: {TEXT}.*'mine'", domains={"mine": domain})


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"name": 5}, rf"metaData\.name: {TEXT}, found the number 5"),
        ({"created_time": 5.5}, rf"metaData\.createdTime: {INTEGER}"),
        ({"configuration": {"a": True}}, rf"metaData\.configuration\['a'\]: {TEXT}, found true"),
        ({"configuration": {"delta.checkpointInterval": 5}}, rf"checkpointInterval'\]: {TEXT}"),
        # Readers leave such an entry out: the property wouldn't be what was set.
        ({"configuration": {"a": None}}, r"found \{'a': None\}, which would be read as \{\}"),
        ({"partition_columns": "part"}, r"metaData\.partitionColumns: found 'part'"),
        ({"partition_columns": (5,)}, r"metaData\.partitionColumns: expected an array of strings"),
        ({"format": Format(options={"a": 1})}, r"metaData\.format\.options\['a'\]"),
        ({"schema_string": {}}, rf"metaData\.schemaString: {TEXT}"),
    ],
)
def test_metadata_are_texts_and_numbers(tmp_path: Path, fields: dict[str, Any], match: str) -> None:
    table(tmp_path, ())
    current = DeltaTable(str(tmp_path)).snapshot().metadata
    refuse(tmp_path, match, metadata=replace(current, **fields))
    write(tmp_path, attempt(tmp_path, metadata=replace(current, name="mine", created_time=None)))


@pytest.mark.parametrize(
    ("protocol", "match"),
    [
        (Protocol("1", 2), rf"protocol\.minReaderVersion: {INTEGER}"),  # type: ignore[arg-type]
        (Protocol(1, 7, None, frozenset({"appendOnly", 5})), r"protocol\.writerFeatures"),  # type: ignore[arg-type]
        (Protocol(1, 7, None, ["appendOnly"]), r"protocol\.writerFeatures: found"),  # type: ignore[arg-type]
    ],
)
def test_a_protocol_is_numbers_and_names(tmp_path: Path, protocol: Protocol, match: str) -> None:
    table(tmp_path, ())
    refuse(tmp_path, match, protocol=protocol)


@pytest.mark.parametrize("kind", ["adds", "removes", "cdc", "transactions"])
def test_an_action_is_of_its_class(tmp_path: Path, kind: str) -> None:
    table(tmp_path, ())
    refuse(
        tmp_path, r"expected an object of the class .*, found Metadata", **{kind: (Metadata("x"),)}
    )
