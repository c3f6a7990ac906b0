"""What a table must be like for Iceberg: PROTOCOL.md, "Iceberg Compatibility V1" and "V2"."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.iceberg_compat import (
    check_iceberg_compat,
    iceberg_compat_version,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    PRIMITIVE_TYPES,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

MAPPED = {"delta.columnMapping.mode": "name"}
V1, V2 = "delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2"
DV = "delta.enableDeletionVectors"
FEATURES = frozenset({"columnMapping", "icebergCompatV1", "icebergCompatV2"})
PLAIN = StructType((StructField("id", LONG),))
NESTED_IDS = "parquet.field.nested.ids"


def v1(schema: StructType = PLAIN, **others: str) -> None:
    check_iceberg_compat(
        FEATURES - {"icebergCompatV2"},
        TableProperties({**MAPPED, V1: "true", **others}, "tbl"),
        schema,
    )


def v2(schema: StructType = PLAIN, **others: str) -> None:
    check_iceberg_compat(FEATURES, TableProperties({**MAPPED, V2: "true", **others}, "tbl"), schema)


def test_a_version_needs_its_feature_and_its_property() -> None:
    on = TableProperties({V1: "true", V2: "true"}, "tbl")
    assert iceberg_compat_version(FEATURES, on) == 2
    assert iceberg_compat_version(FEATURES - {"icebergCompatV2"}, on) == 1
    assert iceberg_compat_version(frozenset(), on) is None
    assert iceberg_compat_version(FEATURES, TableProperties({}, "tbl")) is None


@pytest.mark.parametrize("version", [V1, V2])
def test_column_mapping_is_needed(version: str) -> None:
    for mode in ("name", "id"):
        named = TableProperties({version: "true", "delta.columnMapping.mode": mode}, "tbl")
        check_iceberg_compat(FEATURES, named, PLAIN)
    unmapped = TableProperties({version: "true"}, "tbl")
    with pytest.raises(InvalidTableError, match=r"set delta\.columnMapping\.mode to name or id"):
        check_iceberg_compat(FEATURES, unmapped, PLAIN)
    mapped = TableProperties({version: "true", **MAPPED}, "tbl")
    with pytest.raises(InvalidTableError, match=r"icebergCompatV\d is in force") as caught:
        check_iceberg_compat(FEATURES - {"columnMapping"}, mapped, PLAIN)
    assert caught.value.table == "tbl"


def test_v1_bears_no_support_of_deletion_vectors_v2_no_use_of_them() -> None:
    features = FEATURES | {"deletionVectors"}
    for number, match in ((V1, "supports deletion vectors"), (V2, None)):
        properties = TableProperties({**MAPPED, number: "true"}, "tbl")
        if match is None:
            check_iceberg_compat(features, properties, PLAIN)
        else:
            with pytest.raises(InvalidTableError, match=match):
                check_iceberg_compat(features, properties, PLAIN)
    active = TableProperties({**MAPPED, V2: "true", DV: "true"}, "tbl")
    with pytest.raises(InvalidTableError, match="deletion vectors are enabled"):
        check_iceberg_compat(features, active, PLAIN)
    # A property without the feature turns nothing on.
    check_iceberg_compat(FEATURES, active, PLAIN)


def test_the_versions_exclude_each_other() -> None:
    both = TableProperties({**MAPPED, V1: "true", V2: "true"}, "tbl")
    with pytest.raises(InvalidTableError, match="V1 is in force as well"):
        check_iceberg_compat(FEATURES, both, PLAIN)
    check_iceberg_compat(FEATURES - {"icebergCompatV1"}, both, PLAIN)


@pytest.mark.parametrize("data_type", [ArrayType(LONG), MapType(STRING, LONG), VOID])
def test_v1_has_no_arrays_maps_and_void_at_any_depth(data_type: DataType) -> None:
    inner = StructType((StructField("x", data_type),))
    for schema in (inner, StructType((StructField("s", inner),))):
        with pytest.raises(InvalidTableError, match="V1 has no arrays"):
            v1(schema)


@pytest.mark.parametrize("data_type", [*PRIMITIVE_TYPES.values(), DecimalType(38, 2)])
def test_v2_has_the_types_of_its_list(data_type: DataType) -> None:
    schema = StructType((StructField("x", data_type),))
    if data_type in (VOID, VARIANT):
        with pytest.raises(InvalidTableError, match="which Iceberg lacks"):
            v2(schema)
    else:
        v2(schema)


def field(name: str, data_type: DataType, number: int, **nested: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
    ids = {key.replace("_", "."): value for key, value in nested.items()}
    return StructField(name, data_type, metadata={**metadata, NESTED_IDS: ids})


# The example of the specification.
INNER = field("subcol1", ArrayType(INTEGER), 4, subcol1_element=107)
EXAMPLE = StructType(
    (
        field(
            "col1",
            ArrayType(ArrayType(INTEGER)),
            1,
            col1_element=100,
            col1_element_element=101,
        ),
        field(
            "col2",
            MapType(INTEGER, ArrayType(INTEGER)),
            2,
            col2_key=102,
            col2_value=103,
            col2_value_element=104,
        ),
        field("col3", MapType(INTEGER, StructType((INNER,))), 3, col3_key=105, col3_value=106),
    )
)


def test_nested_fields_have_ids_as_in_the_example() -> None:
    v2(EXAMPLE)


def changed(index: int, **nested: int) -> StructType:
    fields = list(EXAMPLE.fields)
    old = fields[index]
    fields[index] = field(old.name, old.data_type, index + 1, **nested)
    return StructType(tuple(fields))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (changed(0, col1_element=100), r"col1\.element\.element has no id"),
        (changed(1, col2_key=102, col2_value=103), r"col2\.value\.element has no id"),
        (changed(2, col3_value=106), r"col3\.key has no id"),
        (changed(0, col1_element=100, col1_element_element=100), "share the id 100"),
        (changed(0, col1_element=100, col1_element_element=4), "share the id 4"),
        (changed(0, col1_element=100, col1_element_element=2**31), "has no id"),
    ],
)
def test_every_element_key_and_value_has_an_id_of_its_own(schema: StructType, problem: str) -> None:
    with pytest.raises(InvalidTableError, match=problem):
        v2(schema)


def test_the_ids_of_the_writers_in_use_count_too() -> None:
    metadata = {
        "delta.columnMapping.id": 1,
        "delta.columnMapping.physicalName": "col-7",
        "delta.columnMapping.nested.ids": {"col-7.element": 2},
    }
    v2(StructType((StructField("renamed", ArrayType(LONG), metadata=metadata),)))
