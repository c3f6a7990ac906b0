from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.feature import Kind, Support
from airflow_delta.engine.features.negotiation.lowest_protocol import protocol_with
from airflow_delta.engine.features.negotiation.upgrade import (
    check_metadata,
    check_no_shrinking,
    upgrade_protocol,
)
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import (
    INTEGER,
    TIMESTAMP_NTZ,
    DataType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import schema_to_json


def metadata(
    configuration: dict[str, str] | None = None,
    *,
    data_type: DataType = INTEGER,
    field: dict[str, Any] | None = None,
    nullable: bool = True,
    partition_columns: tuple[str, ...] = (),
) -> Metadata:
    fields = (StructField("a", data_type, nullable, field or {}),)
    # A second column to partition by; under column mapping one mapped column will do.
    schema = StructType(fields if field else (*fields, StructField("p", INTEGER)))
    return Metadata(
        id="x",
        schema_string=schema_to_json(schema),
        partition_columns=partition_columns,
        configuration=configuration or {},
    )


MAPPING = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}


def listed(*writers: str, reader: int = 1, readers: tuple[str, ...] | None = None) -> Protocol:
    if readers is not None:
        return Protocol(3, 7, frozenset(readers), frozenset((*writers, *readers)))
    return Protocol(reader, 7, None, frozenset(writers))


UP_TO_2 = ("appendOnly", "invariants")
UP_TO_5 = (*UP_TO_2, "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping")


@pytest.mark.parametrize(
    ("before", "table", "after"),
    [
        # Nothing new: nothing changes, whatever the form.
        (Protocol(1, 2), metadata({"delta.appendOnly": "true"}), Protocol(1, 2)),
        (Protocol(1, 1), metadata(), Protocol(1, 1)),
        (listed(*UP_TO_2), metadata(), listed(*UP_TO_2)),
        # Legacy features find legacy versions.
        (Protocol(1, 2), metadata({"delta.enableChangeDataFeed": "true"}), Protocol(1, 4)),
        (Protocol(1, 2), metadata({"delta.constraints.c": "a > 0"}), Protocol(1, 3)),
        (Protocol(1, 2), metadata(BY_NAME, field=MAPPING), Protocol(2, 5)),
        (Protocol(1, 6), metadata(BY_NAME, field=MAPPING), Protocol(2, 6)),
        # A version that a table reads like another one isn't lowered.
        (Protocol(1, 4), metadata({"delta.constraints.c": "a > 0"}), Protocol(1, 4)),
        # Lists name what the versions promised.
        (
            Protocol(1, 2),
            metadata({"delta.enableInCommitTimestamps": "true"}),
            listed(*UP_TO_2, "inCommitTimestamp"),
        ),
        (
            Protocol(1, 3),
            metadata({"delta.enableInCommitTimestamps": "true"}),
            listed(*UP_TO_2, "checkConstraints", "inCommitTimestamp"),
        ),
        # Reader version 3 only for features that bind readers and no reader version implies.
        (
            Protocol(2, 5),
            metadata({**BY_NAME, "delta.enableInCommitTimestamps": "true"}, field=MAPPING),
            listed(*UP_TO_5, "inCommitTimestamp", reader=2),
        ),
        (
            Protocol(2, 5),
            metadata({**BY_NAME, "delta.enableDeletionVectors": "true"}, field=MAPPING),
            listed(*UP_TO_5, readers=("columnMapping", "deletionVectors")),
        ),
        (
            Protocol(1, 2),
            metadata(data_type=TIMESTAMP_NTZ),
            listed(*UP_TO_2, readers=("timestampNtz",)),
        ),
        # Lists grow by legacy features, too.
        (
            listed("inCommitTimestamp"),
            metadata(BY_NAME, field=MAPPING),
            listed("inCommitTimestamp", "columnMapping", reader=2),
        ),
        (
            listed("appendOnly", readers=("deletionVectors",)),
            metadata(BY_NAME, field=MAPPING),
            listed("appendOnly", readers=("columnMapping", "deletionVectors")),
        ),
        (Protocol(1, 1), metadata(nullable=False), Protocol(1, 2)),
    ],
)
def test_the_protocol_grows_by_what_metadata_need(
    before: Protocol, table: Metadata, after: Protocol
) -> None:
    assert upgrade_protocol(before, table, table="tbl") == after
    check_no_shrinking(before, after, table="tbl")


@pytest.mark.parametrize(
    ("requested", "after"),
    [
        ({"rowTracking"}, listed(*UP_TO_2, "rowTracking", "domainMetadata")),
        ({"clustering"}, listed(*UP_TO_2, "clustering", "domainMetadata")),
        (
            {"icebergCompatV2"},
            listed(*UP_TO_2, "icebergCompatV2", "columnMapping", reader=2),
        ),
        ({"v2Checkpoint"}, listed(*UP_TO_2, readers=("v2Checkpoint",))),
        ({"checkConstraints"}, Protocol(1, 3)),
    ],
)
def test_a_requested_feature_brings_what_it_requires(requested: set[str], after: Protocol) -> None:
    made = upgrade_protocol(Protocol(1, 2), metadata(), requested=frozenset(requested), table="tbl")
    assert made == after


def test_a_mode_of_column_mapping_that_was_there_in_vain_is_not_turned_on() -> None:
    table = metadata(BY_NAME, field=MAPPING)
    assert upgrade_protocol(Protocol(1, 2), table, before=table, table="t") == Protocol(1, 2)
    assert upgrade_protocol(Protocol(1, 2), table, before=metadata(), table="t") == Protocol(2, 5)
    requested = frozenset({"columnMapping"})
    made = upgrade_protocol(Protocol(1, 2), table, before=table, requested=requested, table="t")
    assert made == Protocol(2, 5)
    assert upgrade_protocol(Protocol(2, 5), table, before=table, table="t") == Protocol(2, 5)


def test_a_preview_that_the_table_has_stays_a_preview() -> None:
    before = listed(readers=("typeWidening-preview",))
    table = metadata({"delta.enableTypeWidening": "true"})
    assert upgrade_protocol(before, table, table="tbl") == before
    assert upgrade_protocol(Protocol(1, 2), table, table="tbl") == listed(
        *UP_TO_2, readers=("typeWidening",)
    )


@pytest.mark.parametrize("name", ["shinyNew", "catalogManaged"])
def test_features_that_the_engine_can_not_write_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=name):
        upgrade_protocol(Protocol(1, 2), metadata(), requested=frozenset({name}), table="tbl")


def test_a_table_that_the_engine_can_not_write_is_not_upgraded() -> None:
    with pytest.raises(UnsupportedFeatureError, match="shinyNew"):
        upgrade_protocol(listed("shinyNew"), metadata(), table="tbl")


@pytest.mark.parametrize(
    ("protocol", "table", "problem"),
    [
        (
            Protocol(1, 2),
            metadata({"delta.enableIcebergCompatV1": "true"}),
            "it needs column mapping",
        ),
        (
            Protocol(1, 2),
            metadata(
                {
                    **BY_NAME,
                    "delta.enableIcebergCompatV2": "true",
                    "delta.enableDeletionVectors": "true",
                },
                field=MAPPING,
            ),
            "deletion vectors are enabled",
        ),
        (
            listed(readers=("deletionVectors",)),
            metadata({**BY_NAME, "delta.enableIcebergCompatV1": "true"}, field=MAPPING),
            "supports deletion vectors",
        ),
        (
            Protocol(1, 2),
            metadata({"delta.enableRowTracking": "true"}),
            "materializedRowIdColumnName is missing",
        ),
        (
            listed("clustering", "domainMetadata"),
            metadata(partition_columns=("p",)),
            "can't be clustered as well",
        ),
        (Protocol(1, 2), metadata(BY_NAME), "has the physical name None"),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(
    protocol: Protocol, table: Metadata, problem: str
) -> None:
    with pytest.raises(InvalidTableError, match=problem):
        upgrade_protocol(protocol, table, table="tbl")


def test_metadata_are_judged_by_the_features_that_the_protocol_has() -> None:
    """A property without its feature means nothing."""
    check_metadata(Protocol(1, 2), metadata({"delta.enableIcebergCompatV1": "true"}), table="tbl")


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (Protocol(1, 3), listed(*UP_TO_2), "checkConstraints"),
        (Protocol(2, 5), Protocol(1, 5), "columnMapping"),
        (listed(readers=("deletionVectors",)), listed(), "deletionVectors"),
        (listed("unknown"), listed(), "unknown"),
    ],
)
def test_a_protocol_never_shrinks(old: Protocol, new: Protocol, lost: str) -> None:
    with pytest.raises(InvalidTableError, match=lost) as caught:
        check_no_shrinking(old, new, table="tbl")
    assert caught.value.features == (lost,)


def test_another_form_of_the_same_protocol_is_no_smaller_one() -> None:
    check_no_shrinking(Protocol(1, 3), listed(*UP_TO_2, "checkConstraints"), table="tbl")
    check_no_shrinking(listed(*UP_TO_2, "checkConstraints"), Protocol(1, 3), table="tbl")


@pytest.mark.parametrize(
    "case",
    [
        "basic-with-vacuum-protocol-check-feature",
        "cdc_ict_table",
        "cdf-table-non-partitioned",
        "cdf-table-with-dv",
        "checkpoint-v2-table",
        "dat-check_constraints",
        "data-reader-timestamp_ntz-id-mode",
        "data-skipping-basic-stats-all-types-columnmapping-id",
        "partitioned_with_materialize_feature",
        "table-with-domain-metadata",
        "table_with_partitioning_mapping",
        "type-widening",
    ],
)
def test_other_writers_tables_have_all_that_their_metadata_need(
    golden_case: Callable[[str], Path], case: str
) -> None:
    snapshot = DeltaTable(str(golden_case(case))).snapshot()
    protocol = snapshot.protocol
    assert upgrade_protocol(protocol, snapshot.metadata, table=case) is protocol


def test_a_property_that_nobody_had_to_heed_brings_its_feature(
    golden_case: Callable[[str], Path],
) -> None:
    """Identity columns under writer version 2, as a writer of version 5 left them."""
    snapshot = DeltaTable(str(golden_case("identity_test_written_by_version_5"))).snapshot()
    assert snapshot.protocol == Protocol(1, 2)
    assert upgrade_protocol(snapshot.protocol, snapshot.metadata, table="t") == Protocol(1, 6)


WRITABLE = sorted(
    name
    for name, row in FEATURES.items()
    if Support.NO not in (row.read, row.append)
    and not name.endswith("-preview")
    and name != "managedCommit"  # valid with a property only
)
LEGACY = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6)]


def closed(names: set[str]) -> frozenset[str]:
    return frozenset(names).union(*(FEATURES[name].requires for name in names))


protocols = st.one_of(
    st.sampled_from([Protocol(*versions) for versions in LEGACY]),
    st.builds(
        lambda names: protocol_with(closed(names), Protocol(1, 7, None, frozenset())),
        st.sets(st.sampled_from(WRITABLE), max_size=5),
    ),
)


@settings(max_examples=50, deadline=None)
@given(before=protocols, names=st.sets(st.sampled_from(WRITABLE), max_size=4))
def test_any_upgrade_is_valid_complete_and_no_newer_than_needed(
    before: Protocol, names: set[str]
) -> None:
    requested = closed(names)
    after = upgrade_protocol(before, metadata(), requested=requested, table="tbl")
    check_writable(after, metadata(), table="tbl", operation=Operation.COMMIT)
    supported = supported_features(after)
    assert supported >= requested | supported_features(before)
    # Beyond what is requested for: only what a legacy version promises along with it.
    extra = supported - requested - supported_features(before)
    assert all(FEATURES[name].is_legacy for name in extra)
    assert not extra or after.min_writer_version < 7
    for_readers = {name for name in supported if FEATURES[name].kind is Kind.READER_WRITER}
    if before.min_reader_version < 3:
        assert (after.min_reader_version == 3) == bool(for_readers - {"columnMapping"})
    assert upgrade_protocol(after, metadata(), requested=requested, table="tbl") is after


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({"inCommitTimestamp", "managedCommit"}, {"inCommitTimestamp"}, None),
        ({"inCommitTimestamp", "managedCommit"}, {"inCommitTimestamp", "appendOnly"}, None),
        ({"inCommitTimestamp"}, {"inCommitTimestamp"}, None),
        ({"inCommitTimestamp", "managedCommit"}, set(), None),
        ({"inCommitTimestamp", "managedCommit"}, {"managedCommit"}, r"\['inCommitTimestamp'\]"),
        ({"appendOnly", "managedCommit"}, {"invariants"}, r"\['appendOnly'\]"),
    ],
)
def test_a_protocol_supports_no_less_but_for_managed_commits(
    before: set[str], after: set[str], lost: str | None
) -> None:
    protocols = listed(*before), listed(*after)
    if lost is None:
        check_no_shrinking(*protocols, table="tbl")
        return
    with pytest.raises(InvalidTableError, match=f"lacks the features .*{lost}"):
        check_no_shrinking(*protocols, table="tbl")
