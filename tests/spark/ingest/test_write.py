from __future__ import annotations

import datetime as dt
import json
import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer
from deltalake import QueryBuilder, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
    StorageError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.model.schema import (
    DATE,
    INTEGER,
    STRING,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark import (
    add_constraint,
    delete,
    merge,
    read_snapshot,
    set_not_null,
    update,
    write,
)
from airflow_delta.spark.writer import file_writing
from tests.spark.conftest import bag, rows_of

pytestmark = pytest.mark.usefixtures("compiled")

UTC = dt.timezone.utc

ALL_TYPES = (
    "str string, num8 tinyint, num16 smallint, num32 int, num64 bigint, f float, d double, "
    "dec decimal(38,10), flag boolean, bin binary, day date, ts timestamp, ntz timestamp_ntz, "
    "st struct<a: int, b: struct<c: string>>, arr array<struct<x: int>>, m map<string, array<int>>"
)
EVERY_VALUE: tuple[Any, ...] = (
    "grüße 😀",
    -128,
    32767,
    -(2**31),
    2**63 - 1,
    0.1,
    math.pi,
    Decimal("-1234567890123456789012345678.0123456789"),
    True,
    b"\x00\xff",
    dt.date(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(2024, 3, 10, 2, 30, 0, 1),
    (1, ("deep",)),
    [(1,), None],
    {"k": [1, None], "": None},
)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], ddl: str) -> DataFrame:
    return spark.createDataFrame(rows, ddl)


def log_files(table: Path) -> list[str]:
    return sorted(path.name for path in (table / "_delta_log").glob("*"))


def data_files(table: Path) -> set[str]:
    found = table.rglob("*.parquet")
    return {str(path.relative_to(table)) for path in found if path.is_file()}


def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([EVERY_VALUE, (None,) * len(EVERY_VALUE)], ALL_TYPES)
    result = write(rows, str(tmp_path))
    assert (result.version, result.num_rows, result.written) == (0, 2, True)
    again = read_snapshot(spark, str(tmp_path))
    assert again.schema == rows.schema
    assert bag(rows_of(again)) == bag(rows_of(rows))


def test_the_peer_reads_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([EVERY_VALUE, (None,) * len(EVERY_VALUE)], ALL_TYPES)
    write(rows, str(tmp_path), partition_by=["num32"])
    peer = pa.table(Peer(tmp_path).to_pyarrow_table()).to_pylist()
    assert bag(peer) == bag(rows_of(rows))


def test_timestamps_are_64_bit_microseconds_and_the_session_stays_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    setting = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(setting)
    write(spark.sql("SELECT current_timestamp() AS ts"), str(tmp_path))
    (file,) = data_files(tmp_path)
    assert pq.ParquetFile(tmp_path / file).schema.column(0).physical_type == "INT64"
    assert spark.conf.get(setting) == before == "INT96"


# deltalake 1.6.6 reads -0.05 as "0.-5".
MISREAD_BY_THE_PEER = {"decimal(10,2)"}
PARTITION_VALUES: list[tuple[str, list[Any]]] = [
    ("string", ["a b", "a%20b", "a+b", "é/=:?#%{[*]}\\^'\"", " ", "null", "😀", "a\nb", ".", None]),
    ("string", ["__HIVE_DEFAULT_PARTITION___", "__HIVE_DEFAULT_PARTITION__x", "_x", None]),
    ("int", [0, -1, None]),
    ("bigint", [2**63 - 1]),
    ("double", [0.1, 1e300, math.inf, -math.inf]),
    ("float", [0.1, None]),
    ("decimal(10,2)", [Decimal("1.10"), Decimal("-0.05"), None]),
    ("boolean", [True, False, None]),
    ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    ("binary", [b"\x00", "Öster/reich 😀".encode(), b"=/%", None]),
    (
        "timestamp",
        [
            # An hour that the session's zone has twice, and one it hasn't.
            dt.datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
            dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            None,
        ],
    ),
    ("timestamp_ntz", [dt.datetime(2024, 3, 10, 2, 30, 0, 1), None]),
]


@pytest.mark.parametrize("by_peer", [True, False])
def test_partition_values_come_back_as_they_were(
    spark: SparkSession, tmp_path: Path, by_peer: bool
) -> None:
    """A table is partitioned by a column of each kind; every value is in a row."""
    kinds = [
        (ddl, values) for ddl, values in PARTITION_VALUES if (ddl in MISREAD_BY_THE_PEER) != by_peer
    ]
    number = max(len(values) for _, values in kinds)
    given = [(i, *(values[i % len(values)] for _, values in kinds)) for i in range(number)]
    columns = {f"part{n}": ddl for n, (ddl, _) in enumerate(kinds)}
    ddl = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    rows = frame(spark, given, f"id int, {ddl}")
    write(rows, str(tmp_path), partition_by=list(columns))
    expected = bag(rows_of(rows))
    assert bag(rows_of(read_snapshot(spark, str(tmp_path)))) == expected
    if by_peer:
        peer = pa.table(Peer(tmp_path).to_pyarrow_table()).to_pylist()
        assert bag(peer) == expected


def test_text_that_stands_for_null_in_directories_is_no_partition_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Other readers would take it for null.
    rows = frame(spark, [(1, "__HIVE_DEFAULT_PARTITION__")], "id int, part string")
    with pytest.raises(ConstraintViolationError, match="which all readers take for null: 1 row"):
        write(rows, str(tmp_path), partition_by=["part"])
    assert data_files(tmp_path) == set()


def test_bytes_that_no_text_has_are_no_partition_value(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, [(1, b"ok"), (2, b"\xc3")], "id int, part binary")
    with pytest.raises(ConstraintViolationError, match="expected bytes in UTF-8") as caught:
        write(rows, str(tmp_path), partition_by=["part"])
    assert (caught.value.columns, caught.value.table) == (("part",), str(tmp_path))
    assert data_files(tmp_path) == set()


def test_partition_values_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    # As the protocol's table of formats has them; the first is what the peer misreads.
    ddl = "id int, `dec` decimal(10,2), bin binary, ts timestamp, day date, flag boolean"
    moment = dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC)
    row = (1, Decimal("-0.05"), "\x00ÿ".encode(), moment, dt.date(1970, 1, 1), True)
    write(frame(spark, [row], ddl), str(tmp_path), partition_by=["dec", "bin", "ts", "day", "flag"])
    (values,) = DeltaTable(str(tmp_path)).snapshot().files(["partitionValues"])[0].to_pylist()
    assert dict(values) == {
        "dec": "-0.05",
        "bin": "\x00\xff",
        "ts": "2024-11-03 06:30:00",
        "day": "1970-01-01",
        "flag": "true",
    }


def test_times_after_the_year_9999(spark: SparkSession, tmp_path: Path) -> None:
    """The protocol has no form for them: files may hold them, statistics and partition values may not."""
    # 9999-12-31 23:59:59 in New York, the session's zone, is a time of the year 10000 in UTC.
    rows = spark.sql("SELECT 1 AS id, TIMESTAMP'9999-12-31 23:59:59-05:00' AS until")
    write(rows, str(tmp_path / "clustered"), cluster_by=["until"])
    assert (
        read_snapshot(spark, str(tmp_path / "clustered")).where("year(until) > 9000").count() == 1
    )
    with pytest.raises(
        ConstraintViolationError, match="can't be partitioned by the column 'until'"
    ):
        write(rows, str(tmp_path / "partitioned"), partition_by=["until"])
    assert not DeltaTable(str(tmp_path / "partitioned")).exists()


def test_an_empty_partition_string_is_null(spark: SparkSession, tmp_path: Path) -> None:
    write(
        frame(spark, [(1, ""), (2, "x")], "id int, part string"),
        str(tmp_path),
        partition_by=["part"],
    )
    got = {row["id"]: row["part"] for row in rows_of(read_snapshot(spark, str(tmp_path)))}
    assert got == {1: None, 2: "x"}


def test_two_partition_columns_whatever_they_are_called(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = frame(spark, [(1, "x", 2), (2, None, 3)], "id int, `a=b/ c.d` string, `_e%` int")
    write(rows, str(tmp_path), partition_by=["_e%", "a=b/ c.d"])
    again = read_snapshot(spark, str(tmp_path))
    assert again.columns == ["id", "a=b/ c.d", "_e%"]
    assert bag(rows_of(again)) == bag(rows_of(rows))


def test_append_adds_and_overwrite_replaces(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path)
    assert write(spark.range(3), table).version == 0
    assert write(spark.range(3, 5), table).version == 1
    assert write(spark.range(9, 10), table, "overwrite").version == 2
    by_version = [
        sorted(row["id"] for row in rows_of(read_snapshot(spark, table, version)))
        for version in range(3)
    ]
    assert by_version == [[0, 1, 2], [0, 1, 2, 3, 4], [9]]
    assert pa.table(Peer(tmp_path).to_pyarrow_table()).to_pylist() == [{"id": 9}]


def test_appends_to_a_table_of_the_peer(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1], "part": ["x"]}), partition_by=["part"])
    write(frame(spark, [("y", 2)], "part string, id bigint"), str(tmp_path))
    want = bag([{"id": 1, "part": "x"}, {"id": 2, "part": "y"}])
    assert bag(rows_of(read_snapshot(spark, str(tmp_path)))) == want
    assert bag(pa.table(Peer(tmp_path).to_pyarrow_table()).to_pylist()) == want


def test_the_peer_finds_rows_by_our_statistics(spark: SparkSession, tmp_path: Path) -> None:
    long_text = "z" * 40
    rows = frame(spark, [(0, "a"), (1, long_text), (2, None)], "id int, name string")
    write(rows.repartitionByRange(3, "id"), str(tmp_path))
    query = f"SELECT id FROM t WHERE name >= '{long_text}'"
    found = QueryBuilder().register("t", Peer(tmp_path)).execute(query).read_all()
    assert pa.table(found).to_pylist() == [{"id": 1}]


def test_rows_that_are_none_at_all(spark: SparkSession, tmp_path: Path) -> None:
    none = spark.range(0)
    created = write(none, str(tmp_path))
    assert (created.version, created.num_files, created.written) == (0, 0, True)
    appended = write(none, str(tmp_path))
    assert (appended.version, appended.written) == (0, False)
    assert rows_of(read_snapshot(spark, str(tmp_path))) == []
    assert read_snapshot(spark, str(tmp_path)).schema == T.StructType().add("id", "long")


def test_a_void_column_is_in_the_schema_and_in_no_file(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT 1 AS id, null AS nothing"), str(tmp_path))
    (file,) = data_files(tmp_path)
    assert pq.read_schema(tmp_path / file).names == ["id"]
    again = read_snapshot(spark, str(tmp_path))
    assert again.schema["nothing"].dataType == T.NullType()
    assert rows_of(again) == [{"id": 1, "nothing": None}]


def test_properties_and_table_features_of_a_new_table(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 2 days"}
    write(spark.sql("SELECT timestamp_ntz'2024-01-01' AS at"), str(tmp_path), properties=properties)
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.metadata.configuration == properties
    assert snapshot.protocol.reader_features == {"timestampNtz"}


def test_a_repeated_transaction_writes_once(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path)
    write(spark.range(1), table)
    first = write(spark.range(2), table, txn=("job", 7))
    write(spark.range(3), table)
    files, log = data_files(tmp_path), log_files(tmp_path)
    again = write(spark.range(2), table, txn=("job", 7))
    assert (first.version, first.written) == (1, True)
    assert (again.version, again.written) == (1, False)
    assert (data_files(tmp_path), log_files(tmp_path)) == (files, log)
    assert write(spark.range(2), table, txn=("job", 8)).version == 3
    assert Peer(tmp_path).transaction_version("job") == 8


def test_a_retry_finds_its_commit_if_the_table_refuses_the_write_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    append_only = {"delta.appendOnly": "true"}
    table = str(tmp_path / "overwritten")
    for is_repeated in (False, True):
        result = write(spark.range(2), table, "overwrite", properties=append_only, txn=("job", 1))
        assert (result.version, result.repeated) == (0, is_repeated)
    with pytest.raises(ConstraintViolationError, match="append-only"):
        write(spark.range(2), table, "overwrite", txn=("job", 2))

    table = str(tmp_path / "replaced")
    write(
        spark.sql("SELECT 1 AS a, 2 AS b"), table, properties={"delta.columnMapping.mode": "name"}
    )
    rows, condition = spark.sql("SELECT 1 AS a"), F.col("b").isNull()
    write(rows, table, "overwrite", replace_where=condition, txn=("job", 1))
    DeltaTable(table).alter.drop_columns(["b"])
    again = write(rows, table, "overwrite", replace_where=condition, txn=("job", 1))
    assert (again.version, again.repeated) == (1, True)
    with pytest.raises(InvalidArgumentError):
        write(rows, table, "overwrite", replace_where=condition, txn=("job", 2))

    with pytest.raises(InvalidArgumentError, match="no_such"):
        write(rows, str(tmp_path / "new"), partition_by=["no_such"], txn=("job", 1))


CHANGES = {
    "delete": lambda spark, table: delete(spark, table, "id = 1", txn=("job", 1)),
    "update": lambda spark, table: update(spark, table, {"id": "id + 9"}, txn=("job", 1)),
    "merge": lambda spark, table: (
        merge(spark, table, spark.range(3), "source.id = target.id", txn=("job", 1))
        .when_matched_delete()
        .execute()
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_retry_of_a_change_finds_its_commit_if_the_table_refuses_it_now(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = str(tmp_path)
    write(spark.range(3), table)
    assert CHANGES[name](spark, table).version == 1
    DeltaTable(table).alter.set_properties({"delta.appendOnly": "true"})
    again = CHANGES[name](spark, table)
    assert (again.version, again.written, again.repeated) == (1, False, True)


def test_a_repeated_creation_writes_once(spark: SparkSession, tmp_path: Path) -> None:
    first = write(spark.range(2), str(tmp_path), "error", txn=("job", 1))
    assert (
        write(spark.range(2), str(tmp_path), "error", txn=("job", 1)).version == first.version == 0
    )
    with pytest.raises(TableAlreadyExistsError, match="there is a table already"):
        write(spark.range(2), str(tmp_path), "error", txn=("job", 2))


def test_of_two_runs_of_one_transaction_one_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path)
    write(spark.range(1), table)
    list_data_files = file_writing.list_data_files

    def slow(*arguments: Any) -> Any:
        # Another run of the same task, between the files and the commit of this one.
        monkeypatch.setattr(file_writing, "list_data_files", list_data_files)
        write(spark.range(2), table, txn=("job", 1))
        return list_data_files(*arguments)

    monkeypatch.setattr(file_writing, "list_data_files", slow)
    result = write(spark.range(2), table, txn=("job", 1))
    assert (result.version, result.written, result.repeated) == (1, False, True)
    assert write(spark.range(2), table, txn=("job", 1)).version == 1
    assert len(rows_of(read_snapshot(spark, table))) == 3
    assert len(data_files(tmp_path)) == DeltaTable(table).snapshot().num_files


def test_a_job_that_fails_leaves_table_and_directory_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.range(4), str(tmp_path))
    log, files = log_files(tmp_path), data_files(tmp_path)
    # The first partition is fine and written; the second one fails.
    bad = spark.range(0, 4, 1, 2).select(
        F.when(F.col("id") == 3, F.raise_error(F.lit("bad row")).cast("long"))
        .otherwise(F.col("id"))
        .alias("id")
    )
    with pytest.raises(PySparkException, match="bad row"):
        write(bad, str(tmp_path))
    assert (log_files(tmp_path), data_files(tmp_path)) == (log, files)


def test_a_failed_creation_leaves_no_table(spark: SparkSession, tmp_path: Path) -> None:
    bad = spark.range(1).select(F.raise_error(F.lit("bad row")).cast("long").alias("id"))
    with pytest.raises(PySparkException, match="bad row"):
        write(bad, str(tmp_path / "table"))
    assert not DeltaTable(str(tmp_path / "table")).exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("SELECT 1 AS id, 'x' AS name, 2 AS other", r"\['other'\], which the table lacks"),
        ("SELECT 1 AS id, 2 AS Id, 'x' AS name", r"\['id', 'Id'\], which differ at most in case"),
        ("SELECT 'x' AS id", "id of the rows is string, that of the table is integer"),
        ("SELECT 3000000000L AS id", "a value in the column id that its type integer can't hold"),
    ],
)
def test_rows_of_another_schema_are_refused(
    spark: SparkSession, tmp_path: Path, rows: str, message: str
) -> None:
    write(frame(spark, [(1, "x")], "id int, name string"), str(tmp_path))
    files = data_files(tmp_path)
    with pytest.raises(ConstraintViolationError, match=message):
        write(spark.sql(rows), str(tmp_path))
    assert data_files(tmp_path) == files


RESULTS = {
    "an inner join": "SELECT a.id, a.x FROM a JOIN b USING (id)",
    "a sorted join": "SELECT /*+ MERGE(b) */ a.id, a.x FROM a JOIN b USING (id)",
    "a left join": "SELECT b.id, a.x FROM b LEFT JOIN a USING (id)",
    "a semi join": "SELECT a.* FROM a LEFT SEMI JOIN b USING (id)",
    "an anti join": "SELECT a.* FROM a LEFT ANTI JOIN (SELECT id FROM a WHERE x <= 0) USING (id)",
    "a subquery": "SELECT * FROM a WHERE id IN (SELECT id FROM b)",
    "groups": "SELECT id, max(x) AS x FROM a GROUP BY id HAVING max(x) > 0",
    "a window": "SELECT id, x FROM (SELECT *, sum(x) OVER (PARTITION BY id) AS n FROM a) WHERE n > 0",
    "generated rows": "SELECT id, x FROM a LATERAL VIEW explode(filter(array(1), v -> x > 0)) AS k",
}


@pytest.mark.parametrize("query", RESULTS.values(), ids=list(RESULTS))
def test_only_rows_of_the_result_are_checked(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    for name, rows in (("a", "SELECT id, id - 5 AS x FROM range(10)"), ("b", "SELECT 8L AS id")):
        spark.sql(rows).write.parquet(str(tmp_path / name))
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
    table = str(tmp_path / "table")
    write(spark.sql("SELECT 0L AS id, 1L AS x"), table)
    add_constraint(spark, table, "positive", "x > 0")
    set_not_null(spark, table, "x")
    result = spark.sql(query)
    assert 0 < write(result, table).num_rows == result.count()
    with pytest.raises(ConstraintViolationError, match="1 row breaks this rule"):
        write(result.where("id = 8").withColumn("x", F.lit(-1)), table)
    assert DeltaTable(table).snapshot().version == 3


def test_a_violation_stays_the_error_if_the_rows_cannot_be_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark.range(1, 3), str(tmp_path))
    add_constraint(spark, str(tmp_path), "positive", "id > 0")
    for error in (PySparkException("lost"), StorageError("lost", table=str(tmp_path))):

        def lost(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(file_writing, "violation", lost)
        with pytest.raises(ConstraintViolationError, match="constraint positive") as caught:
            write(spark.range(3), str(tmp_path))
        assert caught.value.rule == "CHECK positive"


def test_lengths_inside_a_struct_that_gets_members(spark: SparkSession, tmp_path: Path) -> None:
    declared = {"__CHAR_VARCHAR_TYPE_STRING": "struct<a:varchar(3),b:char(3)>"}
    members = StructType((StructField("a", STRING), StructField("b", STRING)))
    DeltaTable.create(str(tmp_path), StructType((StructField("s", members, metadata=declared),)))
    more = spark.sql("SELECT named_struct('a', 'abc', 'b', 'x', 'c', 1) AS s")
    write(more, str(tmp_path), merge_schema=True)
    for long in ("named_struct('a', 'abcd')", "named_struct('b', 'abcd')"):
        with pytest.raises(ConstraintViolationError, match="more characters than its type"):
            write(spark.sql(f"SELECT {long} AS s"), str(tmp_path))
    assert [row["s"]["b"] for row in read_snapshot(spark, str(tmp_path)).collect()] == ["x  "]


def test_rules_compare_texts_byte_by_byte(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT 'a' AS c, array('a') AS l"), str(tmp_path))
    add_constraint(spark, str(tmp_path), "is_a", "c = 'a'")
    rows = spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS c, array('x' COLLATE UTF8_LCASE) AS l")
    with pytest.raises(ConstraintViolationError, match="the constraint is_a"):
        write(rows, str(tmp_path))
    lower = rows.withColumn("c", F.lower("c"))
    with pytest.raises(ConstraintViolationError, match="replace_where"):
        write(lower, str(tmp_path), "overwrite", replace_where="l[0] = 'X'")
    write(lower, str(tmp_path))
    assert len(rows_of(read_snapshot(spark, str(tmp_path)))) == 2


@pytest.mark.parametrize("policy", ["EXCEPTION", "LAST_WIN"])
def test_keys_of_a_map_that_become_equal_are_refused(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    write(spark.sql("SELECT array(map(7, 'seven')) AS m"), str(tmp_path))
    spark.conf.set("spark.sql.mapKeyDedupPolicy", policy)
    try:
        write(spark.sql("SELECT array(map(1.2D, 'a', 2.7D, 'b'), map(), NULL) AS m"), str(tmp_path))
        with pytest.raises(
            ConstraintViolationError, match=r"the column m\.element in which keys become equal"
        ):
            write(spark.sql("SELECT array(map(1.2D, 'a', 1.7D, 'b')) AS m"), str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")
    found = read_snapshot(spark, str(tmp_path), 1).where("size(m) = 3").first()
    assert found is not None
    assert found["m"] == [{1: "a", 2: "b"}, {}, None]


@pytest.mark.parametrize("partition_by", [[], ["c"]])
def test_rows_of_a_char_column_replace_themselves(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    declared = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    schema = StructType((StructField("c", STRING, metadata=declared), StructField("n", INTEGER)))
    DeltaTable.create(str(tmp_path), schema, partition_by=partition_by)
    write(spark.sql("SELECT 'ab' AS c, 1 AS n UNION ALL SELECT 'cd', 2"), str(tmp_path))
    own = read_snapshot(spark, str(tmp_path)).where("c = 'ab'").withColumn("n", F.lit(3))
    write(own, str(tmp_path), "overwrite", replace_where="c = 'ab'")
    found = read_snapshot(spark, str(tmp_path)).collect()
    assert sorted((row["c"], row["n"]) for row in found) == [("ab   ", 3), ("cd   ", 2)]


def test_texts_in_double_quotes_stay_texts(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT 'b' AS a"), str(tmp_path))
    add_constraint(spark, str(tmp_path), "no_a", 'a <> "a"')
    write(spark.sql("SELECT 'c' AS a"), str(tmp_path))
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        with pytest.raises(InvalidArgumentError, match=r"doubleQuotedIdentifiers to false in it"):
            write(spark.sql("SELECT 'd' AS a"), str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


def test_a_case_sensitive_session_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT 1 AS a"), str(tmp_path))
    add_constraint(spark, str(tmp_path), "positive", "A > 0")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidArgumentError, match=r"set spark\.sql\.caseSensitive to false"):
            write(spark.sql("SELECT 2 AS a"), str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


UNPARSABLE = {
    "CHECK c": ({}, {"delta.constraints.c": "1 +"}),
    "invariant of b": ({"delta.invariants": '{"expression": {"expression": "1 +"}}'}, {}),
    "generated column b": ({"delta.generationExpression": "1 +"}, {}),
    "default of b": ({"CURRENT_DEFAULT": "1 +"}, {}),
}
"""Rules that Spark can't parse: the metadata of the column and the properties of the table."""


@pytest.mark.parametrize("rule", UNPARSABLE)
def test_an_expression_that_spark_cannot_parse_is_one_of_the_table_in_any_session(
    spark: SparkSession, tmp_path: Path, rule: str
) -> None:
    """No other case of names would help."""
    metadata, properties = UNPARSABLE[rule]
    columns = (StructField("a", INTEGER), StructField("b", INTEGER, metadata=metadata))
    DeltaTable.create(str(tmp_path), StructType(columns), properties=properties)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidTableError, match=f"the table's rule {rule}: ") as caught:
            write(spark.sql("SELECT 1 AS a"), str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert (caught.value.table, caught.value.facts["rule"]) == (str(tmp_path), rule)


@pytest.mark.parametrize("expression", ["no_such(1)", "1 +"])
@pytest.mark.parametrize(
    ("key", "rule"),
    [("CURRENT_DEFAULT", "default of b"), ("delta.generationExpression", "generated column b")],
)
def test_an_expression_of_the_table_that_spark_cannot_resolve_is_named(
    spark: SparkSession, tmp_path: Path, key: str, rule: str, expression: str
) -> None:
    columns = (StructField("a", INTEGER), StructField("b", INTEGER, metadata={key: expression}))
    DeltaTable.create(str(tmp_path), StructType(columns))
    with pytest.raises(InvalidTableError, match=f"the table's rule {rule}: ") as caught:
        write(spark.sql("SELECT 1 AS a"), str(tmp_path))
    assert caught.value.facts["rule"] == rule
    assert not data_files(tmp_path)


@pytest.mark.parametrize("expression", ["a", "A + 1", "other", "c"])
def test_a_default_takes_no_value_of_the_row(
    spark: SparkSession, tmp_path: Path, expression: str
) -> None:
    default = {"CURRENT_DEFAULT": expression}
    columns = (StructField("a", INTEGER), StructField("b", INTEGER, metadata=default))
    DeltaTable.create(str(tmp_path), StructType((*columns, StructField("c", INTEGER))))
    with pytest.raises(InvalidTableError, match="the table's rule default of b: "):
        write(spark.sql("SELECT 1 AS a, 2 AS c"), str(tmp_path))
    assert not data_files(tmp_path)


def test_a_default_may_be_a_function_without_parentheses(
    spark: SparkSession, tmp_path: Path
) -> None:
    default = {"CURRENT_DEFAULT": "current_date"}
    columns = (StructField("a", INTEGER), StructField("b", DATE, metadata=default))
    DeltaTable.create(str(tmp_path), StructType(columns))
    rows = spark.sql("SELECT 1 AS a")
    write(rows, str(tmp_path))
    # For Spark another thread has no session of its own.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(write, rows, str(tmp_path)).result()
    found = read_snapshot(spark, str(tmp_path)).collect()
    assert [row["b"] is None for row in found] == [False, False]


def test_a_generated_map_is_computed_but_not_given(spark: SparkSession, tmp_path: Path) -> None:
    generated = {"delta.generationExpression": "map('k', a)"}
    wanted = MapType(STRING, INTEGER, value_contains_null=True)
    schema = StructType((StructField("a", INTEGER), StructField("m", wanted, metadata=generated)))
    DeltaTable.create(str(tmp_path), schema)
    write(spark.sql("SELECT 1 AS a"), str(tmp_path))
    with pytest.raises(ConstraintViolationError, match=r"can't compare maps.*leave it out"):
        write(spark.sql("SELECT 1 AS a, map('k', 1) AS m"), str(tmp_path))
    assert [row["m"] for row in read_snapshot(spark, str(tmp_path)).collect()] == [{"k": 1}]


def test_a_new_definition_that_the_table_cannot_have_is_refused_before_the_work(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, 2 AS n"), str(tmp_path), cluster_by=["n"])
    files = data_files(tmp_path)
    worked = spark.sql("SELECT 1 AS id, struct(1 AS x) AS n").where(
        F.raise_error(F.lit("rows are computed")).cast("boolean")
    )
    with pytest.raises(InvalidTableError, match="cluster"):
        write(worked, str(tmp_path), "overwrite", overwrite_schema=True)
    assert data_files(tmp_path) == files


def test_a_new_definition_keeps_the_partitions_whatever_the_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, 'a' AS P"), str(tmp_path), partition_by=["P"])
    write(spark.sql("SELECT 2L AS id, 'b' AS p"), str(tmp_path), "overwrite", overwrite_schema=True)
    assert DeltaTable(str(tmp_path)).snapshot().metadata.partition_columns == ("p",)


def test_an_empty_text_that_partitions_a_table_may_be_given(
    spark: SparkSession, tmp_path: Path
) -> None:
    generated = StructField("p", STRING, metadata={"delta.generationExpression": "a"})
    schema = StructType((StructField("a", STRING), generated))
    DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    for given in ("''", "NULL"):
        write(spark.sql(f"SELECT '' AS a, {given} AS p"), str(tmp_path))
    with pytest.raises(
        ConstraintViolationError, match="in the column p than its generation expression"
    ):
        write(spark.sql("SELECT 'x' AS a, '' AS p"), str(tmp_path))
    assert {row["p"] for row in read_snapshot(spark, str(tmp_path)).collect()} == {None}


@pytest.mark.parametrize("merge_schema", [False, True])
@pytest.mark.parametrize("value", ["1", "1.5D", "'x'", "DATE'2024-01-01'", "array(1)"])
def test_no_value_is_stored_in_a_struct(
    spark: SparkSession, tmp_path: Path, value: str, merge_schema: bool
) -> None:
    structs = spark.sql("SELECT struct(1 AS f, map('k', struct(1 AS g)) AS m) AS s")
    write(structs, str(tmp_path), properties={"delta.enableTypeWidening": "true"})
    for at in (value, f"struct(1 AS f, map('k', {value}) AS m)"):
        with pytest.raises(ConstraintViolationError, match=r"that of the table is struct<"):
            write(spark.sql(f"SELECT {at} AS s"), str(tmp_path), merge_schema=merge_schema)
    assert DeltaTable(str(tmp_path)).snapshot().version == 0


def test_a_null_where_none_may_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inner = StructType((StructField("b", INTEGER, nullable=False),))
    schema = StructType(
        (
            StructField("id", INTEGER, nullable=False),
            StructField("a", inner),
            StructField("p", STRING),
        )
    )
    DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    ddl = "id int, a struct<b: int>, p string"
    write(frame(spark, [(1, (2,), "x"), (2, (3,), None)], ddl), str(tmp_path))
    # A member of a null struct is null, as in Delta Spark.
    broken = [((None, (2,), "x"), "id"), ((1, (None,), "x"), r"a\.b"), ((1, None, "x"), r"a\.b")]
    for row, column in broken:
        with pytest.raises(ConstraintViolationError, match=f"a null in the column {column},"):
            write(frame(spark, [row], ddl), str(tmp_path))
    assert len(rows_of(read_snapshot(spark, str(tmp_path)))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mode": "merge"},
            "unknown mode 'merge': expected one of append, overwrite, error, ignore",
        ),
        ({"partition_overwrite": "some"}, "unknown partition_overwrite 'some'"),
        ({"partition_by": ["x"]}, "are no columns of the table, which has id"),
        ({"partition_by": ["id", "id"]}, "a column is listed twice"),
        ({"replace_where": "id > 1"}, "the mode is 'append': use mode='overwrite'"),
        (
            {"mode": "overwrite", "replace_where": "id > 1", "overwrite_schema": True},
            "exclude each other",
        ),
        ({"target_file_size": 0}, "expected a number of bytes, at least 1"),
        ({"merge_schema": "false"}, "merge_schema: expected true or false"),
        ({"mode": "overwrite", "overwrite_schema": "False"}, "overwrite_schema: expected true or"),
        ({"optimize_write": "yes"}, "optimize_write: expected true, false or None"),
        ({"mode": "overwrite", "replace_where": 5}, "replace_where: expected a condition"),
        ({"partition_by": None}, "partition_by: expected names of columns"),
        ({"partition_by": "id"}, "partition_by: expected names of columns"),
        ({"cluster_by": [1]}, r"cluster_by\[0\]: expected a text"),
    ],
)
def test_arguments_that_make_no_sense(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        write(spark.range(1), str(tmp_path / "t"), **arguments)


@pytest.mark.parametrize("txn", [("job", "7"), ("job",), ("job", 1, 2), "job", ()])
def test_what_cannot_be_a_transaction_identifier_is_refused_before_any_row_is_read(
    spark: SparkSession, tmp_path: Path, txn: Any
) -> None:
    table, fails = str(tmp_path), "id = raise_error('evaluated')"
    write(spark.range(3), table)
    rows = spark.range(3).where(fails)
    for change in (
        lambda: write(rows, table, txn=txn),
        lambda: write(rows, str(tmp_path / "new"), txn=txn),
        lambda: delete(spark, table, fails, txn=txn),
        lambda: update(spark, table, {"id": 1}, fails, txn=txn),
        lambda: merge(spark, table, rows, "target.id = source.id", txn=txn),
    ):
        with pytest.raises(InvalidArgumentError, match="a transaction identifier is a text and"):
            change()


def test_another_partitioning_than_the_tables_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(frame(spark, [(1, "x")], "id int, p string"), str(tmp_path), partition_by=["p"])
    with pytest.raises(InvalidArgumentError, match=r"partitioned by \['p'\], not by \['id'\]"):
        write(frame(spark, [(1, "x")], "id int, p string"), str(tmp_path), partition_by=["id"])


def test_rows_without_a_column_for_the_files_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match="a data file needs at least one other column"):
        write(spark.range(1), str(tmp_path / "t"), partition_by=["id"])
    with pytest.raises(ConstraintViolationError, match=r"a void inside an array or a map.*\['a'\]"):
        write(spark.sql("SELECT array(null) AS a"), str(tmp_path / "t"))


def test_what_the_commit_says_of_itself(spark: SparkSession, tmp_path: Path) -> None:
    write(frame(spark, [(1, "x")], "id int, p string"), str(tmp_path), partition_by=["p"])
    (info,) = DeltaTable(str(tmp_path)).history()
    assert info.operation == "WRITE"
    assert info.operation_parameters == {"mode": "Append", "partitionBy": json.dumps(["p"])}
    metrics = dict(info.operation_metrics or {})
    assert metrics.pop("numOutputBytes").isdigit()
    assert metrics == {"numFiles": "1", "numOutputRows": "1"}


def test_a_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgumentError, match="a stream: write its batches by foreachBatch"):
        write(stream, str(tmp_path))


def test_a_void_column_becomes_no_struct_whose_members_files_cannot_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, NULL AS v"), str(tmp_path))
    rows = spark.sql("SELECT 1 AS id, named_struct('a b', 1) AS v")
    with pytest.raises(InvalidTableError, match=r"\['v\.a b'\] have a character of"):
        write(rows, str(tmp_path), merge_schema=True)
    assert not write(rows, str(tmp_path), "ignore", merge_schema=True).written
    with pytest.raises(TableAlreadyExistsError):
        write(rows, str(tmp_path), "error", merge_schema=True)


def test_a_table_that_keeps_changes_gets_no_column_of_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    write(spark.sql("SELECT 1 AS id"), str(tmp_path), properties=feed)
    taken = spark.sql("SELECT 2 AS id, 'x' AS _Change_Type").where(
        F.raise_error(F.lit("rows are computed")).cast("boolean")
    )
    named: list[dict[str, Any]] = [
        {"merge_schema": True},
        {"mode": "overwrite", "overwrite_schema": True},
    ]
    for arguments in named:
        with pytest.raises(InvalidTableError, match="names of the columns of a change"):
            write(taken, str(tmp_path), **arguments)
    with pytest.raises(InvalidTableError, match="names of the columns of a change"):
        write(taken, str(tmp_path / "new"), properties=feed)
    assert DeltaTable(str(tmp_path)).snapshot().version == 0


def test_modes_for_new_tables_whatever_the_partitions_of_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = frame(spark, [(1, 2)], "a int, b int")
    write(rows, str(tmp_path))
    assert not write(rows, str(tmp_path), "ignore", partition_by=["a"]).written
    with pytest.raises(TableAlreadyExistsError):
        write(rows, str(tmp_path), "error", partition_by=["a"])


def test_few_parts_of_a_shuffle_make_no_more_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(40_000, numPartitions=4).selectExpr(
        "id % 10 AS part", "sha2(cast(id AS string), 512) AS text"
    )
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        # Half of the values together are larger, one is smaller.
        write(rows, str(tmp_path), partition_by=["part"], target_file_size=1_200_000)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert DeltaTable(str(tmp_path)).snapshot().num_files == 10
