from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from airflow_delta.engine.errors import DeltaError, InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.protocol import (
    Operation,
    check_readable,
    check_writable,
    describe_features,
    supported_features,
)
from airflow_delta.engine.features.protocol_lists import legacy_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import BYTE, INTEGER, StructField, StructType
from airflow_delta.engine.model.schema_json import schema_to_json

SCHEMA = StructType((StructField("a", INTEGER),))


def protocol(
    reader: int,
    writer: int,
    readers: Iterable[str] | None = None,
    writers: Iterable[str] | None = None,
) -> Protocol:
    return Protocol(
        reader,
        writer,
        None if readers is None else frozenset(readers),
        None if writers is None else frozenset(writers),
    )


def features(*names: str) -> Protocol:
    """A protocol that lists features as the specification wants it."""
    for_readers = [name for name in names if FEATURES[name].kind.value == "reader-writer"]
    if for_readers:
        return protocol(3, 7, for_readers, names)
    return protocol(1, 7, None, names)


def metadata(
    configuration: Mapping[str, str] | None = None, schema: StructType = SCHEMA
) -> Metadata:
    return Metadata(id="x", schema_string=schema_to_json(schema), configuration=configuration or {})


def append(
    protocol: Protocol, table: Metadata | None = None, *, enforced: Iterable[str] = ()
) -> None:
    check_writable(
        protocol,
        table or metadata(),
        table="tbl",
        operation=Operation.APPEND,
        enforced=frozenset(enforced),
    )


def commit(protocol: Protocol, table: Metadata | None = None) -> None:
    check_writable(protocol, table or metadata(), table="tbl", operation=Operation.COMMIT)


def checkpoint(protocol: Protocol, table: Metadata | None = None) -> None:
    check_writable(protocol, table or metadata(), table="tbl", operation=Operation.CHECKPOINT)


@pytest.mark.parametrize(
    ("reader", "writer", "implied"),
    [
        (1, 1, set()),
        (1, 2, {"appendOnly", "invariants"}),
        (1, 3, {"appendOnly", "invariants", "checkConstraints"}),
        (
            1,
            4,
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
            },
        ),
        (
            2,
            5,
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
                "columnMapping",
            },
        ),
        (
            2,
            6,
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
                "columnMapping",
                "identityColumns",
            },
        ),
    ],
)
def test_a_legacy_version_implies_its_features_and_those_below(
    reader: int, writer: int, implied: set[str]
) -> None:
    assert legacy_features(reader, writer) == implied
    assert supported_features(protocol(reader, writer)) == implied


def test_column_mapping_needs_the_reader_version_too() -> None:
    assert "columnMapping" not in supported_features(protocol(1, 5))


def test_versions_and_lists_that_mean_the_same_support_the_same() -> None:
    legacy = protocol(1, 3)
    listed = protocol(1, 7, None, ["appendOnly", "invariants", "checkConstraints"])
    assert supported_features(legacy) == supported_features(listed)


def test_reader_version_2_with_listed_writer_features_is_column_mapping() -> None:
    """The two equivalent examples of "Protocol Evolution"."""
    one = protocol(2, 7, None, ["columnMapping", "identityColumns"])
    other = protocol(3, 7, ["columnMapping"], ["columnMapping", "identityColumns"])
    assert supported_features(one) == supported_features(other)
    append(one)
    append(other)


def test_writer_version_7_implies_nothing() -> None:
    assert supported_features(protocol(1, 7, None, ["changeDataFeed"])) == {"changeDataFeed"}


def test_a_property_without_the_feature_activates_nothing() -> None:
    table = metadata({"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"})
    for writer, expected in [(2, {"appendOnly"}), (4, {"appendOnly", "changeDataFeed"})]:
        features = describe_features(protocol(1, writer), table, table="tbl")
        assert {status.name for status in features if status.active} == expected


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (protocol(0, 2), "expected at least 1"),
        (protocol(1, 0), "expected at least 1"),
        (protocol(3, 2, ["deletionVectors"]), "expected writer version 7"),
        (protocol(3, 7, None, ["deletionVectors"]), "readerFeatures is missing at version 3"),
        (protocol(1, 7), "writerFeatures is missing at version 7"),
        (
            protocol(1, 7, ["deletionVectors"], ["deletionVectors"]),
            "readerFeatures lists .* at version 1",
        ),
        (protocol(1, 4, None, ["changeDataFeed"]), "writerFeatures lists .* at version 4"),
        (
            protocol(3, 7, ["deletionVectors"], ["appendOnly"]),
            r"lists \['deletionVectors'\] in readerFeatures but not in writerFeatures",
        ),
    ],
)
def test_versions_and_lists_must_fit_together(broken: Protocol, message: str) -> None:
    with pytest.raises(InvalidTableError, match=message):
        check_readable(broken, table="tbl")
    with pytest.raises(InvalidTableError, match=message):
        append(broken)


def test_empty_lists_below_their_version_are_passed_over() -> None:
    check_readable(protocol(1, 2, [], []), table="tbl")
    append(protocol(1, 7, [], []))


def test_a_newer_reader_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="needs reader version 4, the engine has 3"):
        check_readable(protocol(4, 7, ["x"], ["x"]), table="tbl")


def test_a_newer_writer_version_binds_writers_only() -> None:
    newer = protocol(1, 8)
    check_readable(newer, table="tbl")
    for write in (append, checkpoint):
        with pytest.raises(UnsupportedFeatureError, match="needs writer version 8, the engine has"):
            write(newer)


def test_an_unknown_reader_feature_is_refused_by_name() -> None:
    unknown = protocol(3, 7, ["shinyNew"], ["shinyNew"])
    with pytest.raises(UnsupportedFeatureError, match=r"can't read .* shinyNew") as caught:
        check_readable(unknown, table="tbl")
    assert caught.value.features == ("shinyNew",)
    assert caught.value.table == "tbl"


def test_an_unknown_writer_feature_binds_writers_only() -> None:
    unknown = protocol(1, 7, None, ["shinyNew", "appendOnly"])
    check_readable(unknown, table="tbl")
    for write in (append, checkpoint):
        with pytest.raises(UnsupportedFeatureError, match=r"can't write .* shinyNew"):
            write(unknown)


@pytest.mark.parametrize(
    "name",
    [
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
    ],
)
def test_reader_features_that_are_read(name: str) -> None:
    check_readable(features(name), metadata(), table="tbl")
    append(features(name))
    checkpoint(features(name))


@pytest.mark.parametrize(
    "name",
    [
        "catalogManaged",
        "catalogOwned-preview",
        "geospatial",
    ],
)
def test_reader_features_that_are_refused(name: str) -> None:
    for check in (append, checkpoint, lambda p: check_readable(p, table="tbl")):
        with pytest.raises(UnsupportedFeatureError, match=f"can't read .* {name}"):
            check(features(name))


@pytest.mark.parametrize(
    "name", ["variantType", "variantType-preview", "variantShredding", "variantShredding-preview"]
)
def test_the_log_of_a_table_with_variants_is_read_and_not_written(name: str) -> None:
    check_readable(features(name), table="tbl")
    for write in (append, checkpoint):
        with pytest.raises(UnsupportedFeatureError, match=f"can't write .* {name}"):
            write(features(name))


def test_a_reader_writer_feature_that_only_writers_list_is_honoured_for_reading() -> None:
    """As the golden table dat-iceberg_compat_v1, which the reference implementations read."""
    half = protocol(3, 7, [], ["columnMapping"])
    check_readable(half, table="tbl")
    assert "columnMapping" in supported_features(half)
    with pytest.raises(InvalidTableError, match="doesn't imply them for readers"):
        append(half)
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        check_readable(protocol(1, 7, None, ["catalogManaged"]), table="tbl")


def test_a_writer_feature_listed_for_readers_is_passed_over_by_readers_only() -> None:
    odd = protocol(3, 7, ["appendOnly"], ["appendOnly"])
    check_readable(odd, table="tbl")
    with pytest.raises(InvalidTableError, match=r"\['appendOnly'\] in readerFeatures"):
        append(odd)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("icebergCompatV1", "columnMapping"),
        ("icebergCompatV2", "columnMapping"),
        ("clustering", "domainMetadata"),
    ],
)
def test_a_missing_dependency_is_passed_over_by_readers_only(name: str, lacks: str) -> None:
    alone = features(name)
    check_readable(alone, metadata(), table="tbl")
    with pytest.raises(InvalidTableError, match=f"feature {name} without .*{lacks}"):
        append(alone)
    append(features(name, lacks))


def test_a_legacy_version_fulfils_a_dependency() -> None:
    append(protocol(2, 7, None, ["icebergCompatV1", "columnMapping"]))


def key(name: str) -> StructType:
    return StructType((StructField("a", INTEGER, metadata={name: "1"}),))


@pytest.mark.parametrize(
    ("listed", "configuration", "schema"),
    [
        (["invariants"], {}, key("delta.invariants")),
        (["checkConstraints"], {"delta.constraints.c": "a > 0"}, SCHEMA),
        (["generatedColumns"], {}, key("delta.generationExpression")),
        (["identityColumns"], {}, key("delta.identity.start")),
        (["allowColumnDefaults"], {}, key("CURRENT_DEFAULT")),
        (["icebergCompatV1", "columnMapping"], {"delta.enableIcebergCompatV1": "true"}, SCHEMA),
        (["icebergCompatV2", "columnMapping"], {"delta.enableIcebergCompatV2": "true"}, SCHEMA),
    ],
)
def test_rules_for_rows_bind_appends_while_they_are_in_use(
    listed: list[str], configuration: dict[str, str], schema: StructType
) -> None:
    append(features(*listed))
    in_use = metadata(configuration, schema)
    with pytest.raises(
        UnsupportedFeatureError, match=rf"can't write \(append\) .* {listed[0]}"
    ) as e:
        append(features(*listed), in_use)
    # It is for the writer to say so, and for nobody to drop.
    assert e.value.message.endswith(f"declares it with enforces={listed[:1]}")
    with pytest.raises(UnsupportedFeatureError, match=listed[0]):
        append(features(*listed), in_use, enforced={"appendOnly"})
    append(features(*listed), in_use, enforced={listed[0]})
    commit(features(*listed), in_use)
    checkpoint(features(*listed), in_use)


def test_materialised_partition_columns_bind_appends_once_the_feature_is_supported() -> None:
    listed = features("materializePartitionColumns")
    with pytest.raises(UnsupportedFeatureError, match="materializePartitionColumns"):
        append(listed)
    append(listed, enforced={"materializePartitionColumns"})
    commit(listed)


def test_the_error_lists_the_features_that_can_be_declared() -> None:
    listed = protocol(1, 7, None, ["checkConstraints", "shinyNew"])
    in_use = metadata({"delta.constraints.c": "a > 0"})
    with pytest.raises(
        UnsupportedFeatureError, match="use an engine that supports the others"
    ) as e:
        append(listed, in_use)
    assert "declares it with enforces=['checkConstraints']; use" in e.value.message


def test_a_legacy_table_is_judged_like_one_that_lists_the_features() -> None:
    in_use = metadata({"delta.constraints.c": "a > 0"})
    append(protocol(1, 2), in_use)
    with pytest.raises(UnsupportedFeatureError, match="checkConstraints"):
        append(protocol(1, 3), in_use)


@pytest.mark.parametrize(
    "listed",
    [
        ["appendOnly"],
        ["changeDataFeed"],
        ["domainMetadata"],
        ["clustering", "domainMetadata"],
        ["rowTracking", "domainMetadata"],
        ["inCommitTimestamp"],
        ["checkpointProtection"],
    ],
)
def test_writer_features_that_are_fulfilled(listed: list[str]) -> None:
    in_use = metadata(
        {
            "delta.appendOnly": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.requireCheckpointProtectionBeforeVersion": "5",
        }
    )
    append(features(*listed), in_use)
    checkpoint(features(*listed), in_use)


@pytest.mark.parametrize(
    "listed",
    [
        ["coordinatedCommits-preview", "inCommitTimestamp", "vacuumProtocolCheck"],
        ["collations-preview"],
    ],
)
def test_writer_features_that_bar_every_write(listed: list[str]) -> None:
    barred = features(*listed)
    check_readable(barred, table="tbl")
    for write in (append, commit, checkpoint):
        with pytest.raises(UnsupportedFeatureError, match=f"can't write .* {listed[0]}"):
            write(barred)


def test_a_managed_table_can_be_written_as_its_owner_sees_to_it() -> None:
    owned = metadata({"delta.managedCommit.commitOwner": "owner"})
    managed = features("managedCommit", "inCommitTimestamp")
    for write in (append, commit, checkpoint):
        write(managed, owned)


def test_a_commit_owner_without_its_feature_bars_writing() -> None:
    owned = metadata({"delta.managedCommit.commitOwner": "owner"})
    check_readable(protocol(1, 2), owned, table="tbl")
    with pytest.raises(InvalidTableError, match="lacks the feature managedCommit"):
        append(protocol(1, 2), owned)


def test_a_change_of_type_that_can_not_be_followed_bars_reading() -> None:
    changes = {"delta.typeChanges": [{"fromType": "string", "toType": "byte"}]}
    narrowed = metadata(schema=StructType((StructField("a", BYTE, metadata=changes),)))
    with pytest.raises(UnsupportedFeatureError, match="a: string to byte"):
        check_readable(features("typeWidening"), narrowed, table="tbl")
    check_readable(protocol(1, 2), narrowed, table="tbl")


def test_the_description_agrees_with_the_checks() -> None:
    constrained = metadata({"delta.constraints.c": "a > 0"})
    for name in FEATURES:
        table = features(name, *FEATURES[name].requires)
        status = {s.name: s for s in describe_features(table, constrained, table="tbl")}
        assert {s.name for s in status.values() if s.supported} == supported_features(table)
        every = [status[listed] for listed in supported_features(table)]
        assert all(s.can_write for s in every) == passes(append, table, constrained)
        assert all(s.can_read for s in every) == passes(
            lambda p, m: check_readable(p, m, table="tbl"), table, constrained
        )


def passes(check, protocol: Protocol, table: Metadata) -> bool:  # type: ignore[no-untyped-def]
    try:
        check(protocol, table)
    except UnsupportedFeatureError:
        return False
    except DeltaError:
        # A dependency's own dependency is missing, which is about the protocol, not the engine.
        return True
    return True


def test_unknown_features_are_described_too() -> None:
    table = protocol(3, 7, ["newForAll"], ["newForAll", "newForWriters"])
    status = {s.name: s for s in describe_features(table, metadata(), table="tbl")}
    assert not status["newForAll"].can_read
    assert status["newForWriters"].can_read
    assert not status["newForWriters"].can_write
    assert not status["appendOnly"].supported
