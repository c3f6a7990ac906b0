"""Managed tables as deltalake and Delta Spark take them, of which neither has heard of commit owners.

Both read what is backfilled, and refuse to write. Once a table is taken back they write to it as to any
other. Data files are real, and each version is read by each engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError

OWNER = "central"
SCHEMA = StructType((StructField("id", LONG),))


class Managed:
    """A table that can have a commit owner, with what each of its versions is to hold.

    Attributes:
        root: its directory.
        expected: the ids by version, as far as they are written down.
    """

    def __init__(self, root: Path, peer: DeltaSpark) -> None:
        self.root = root
        self.expected: list[list[int]] = []
        self._owner = SqlCommitOwner(f"sqlite:///{root}.db")
        self._peer = peer

    @property
    def ours(self) -> DeltaTable:
        """The table with its owner."""
        return DeltaTable(self.root, commit_owners={OWNER: self._owner})

    @property
    def name(self) -> str:
        """The table in Spark SQL."""
        return f"delta.`{self.root}`"

    def create(self, backfill: str) -> None:
        """Have us create it, managed from the start."""
        properties = {
            "delta.managedCommit.commitOwner": OWNER,
            "delta.managedCommit.commitOwnerConf": json.dumps({"backfill": backfill}),
        }
        DeltaTable.create(
            self.root, SCHEMA, properties=properties, commit_owners={OWNER: self._owner}
        )
        self.expected.append([])

    def append(self) -> None:
        """Have us append a row."""
        number = self._next()
        path = f"ours-{number}.parquet"
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), self.root / path)
        bounds = {"id": number}
        stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0}}
        size = (self.root / path).stat().st_size
        transaction = self.ours.transaction("WRITE")
        transaction.add_file(AddFile(path, {}, size, 1, data_change=True, stats=json.dumps(stats)))
        assert transaction.commit().version == len(self.expected) - 1

    def append_by_spark(self) -> None:
        """Have Delta Spark append a row."""
        self._peer.sql(f"INSERT INTO {self.name} VALUES ({self._next()})")

    def append_by_deltalake(self) -> None:
        """Have deltalake append a row."""
        row = pa.table({"id": pa.array([self._next()], pa.int64())})
        deltalake.write_deltalake(str(self.root), row, mode="append")

    def change(self, sql: str = "", *, versions: int = 1) -> None:
        """Note a change that leaves the rows as they are; or have Delta Spark make it."""
        if sql:
            self._peer.sql(f"ALTER TABLE {self.name} {sql}")
        self.expected += [self.expected[-1]] * versions

    def check(self, *, backfilled: int | None = None) -> None:
        """All engines read the newest version that they can see.

        Args:
            backfilled: the newest one that is backfilled; None where all are.
        """
        newest = len(self.expected) - 1
        backfilled = newest if backfilled is None else backfilled
        ours, theirs = self.ours.snapshot(), deltalake.DeltaTable(str(self.root))
        assert (ours.version, theirs.version()) == (newest, backfilled)
        assert ids_of(ours.file_uris()) == self.expected[newest]
        assert by_deltalake(theirs) == self.expected[backfilled]
        assert self.by_spark() == [self.expected[backfilled]]

    def check_history(self, *, by_version: Sequence[int], by_time: Sequence[int] = ()) -> None:
        """The engines read each version; Delta Spark, which takes its time, some of them.

        Args:
            by_version: those that it finds by their numbers.
            by_time: those that it finds by their in-commit timestamps.
        """
        times = [info.in_commit_timestamp_ms or 0 for info in self.ours.history()][::-1]
        for version, expected in enumerate(self.expected):
            assert ids_of(self.ours.snapshot(version).file_uris()) == expected
            assert self.ours.snapshot(timestamp=times[version]).version == version
            theirs = deltalake.DeltaTable(str(self.root), version=version)
            assert by_deltalake(theirs) == expected
        moments = [f"VERSION AS OF {version}" for version in by_version]
        for version in by_time:
            moment = datetime.fromtimestamp(times[version] / 1000, timezone.utc)
            moments.append(f"TIMESTAMP AS OF '{moment:%F %T.%f}'")
        wanted = [self.expected[version] for version in (*by_version, *by_time)]
        assert self.by_spark(*moments) == wanted

    def by_spark(self, *moments: str) -> list[list[int]]:
        """The ids that Delta Spark reads at each of some moments; now unless told."""
        queries = [
            f"SELECT {place} AS place, id FROM {self.name} {moment}"
            for place, moment in enumerate(moments or [""])
        ]
        found: list[list[int]] = [[] for _ in queries]
        for row in self._peer.sql(" UNION ALL ".join(queries)):
            found[row["place"]].append(row["id"])
        return [sorted(ids) for ids in found]

    def log(self) -> set[str]:
        """The files of the log."""
        return {path.name for path in (self.root / "_delta_log").iterdir()}

    def _next(self) -> int:
        """The id of a row that is about to be appended."""
        before = self.expected[-1]
        self.expected.append([*before, len(before)])
        return len(before)


def ids_of(uris: list[str]) -> list[int]:
    return sorted(number for uri in uris for number in pq.read_table(uri)["id"].to_pylist())


def by_deltalake(peer: deltalake.DeltaTable) -> list[int]:
    query = deltalake.QueryBuilder().register("t", peer)
    return sorted(pa.table(query.execute("SELECT id FROM t").read_all())["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path, delta_spark: DeltaSpark) -> Managed:
    return Managed(tmp_path / "table", delta_spark)


def refused(table: Managed, write: Callable[[], None], error: type[Exception], why: str) -> None:
    """A write fails, and leaves nothing in the log."""
    before, expected = table.log(), [*table.expected]
    with pytest.raises(error, match=why):
        write()
    assert table.log() == before
    table.expected = expected


def both_refuse(table: Managed) -> None:
    refused(table, table.append_by_spark, DeltaSparkError, "managedCommit")
    refused(table, table.append_by_deltalake, deltalake.exceptions.DeltaError, "managedCommit")


@pytest.mark.deep
def test_a_table_of_delta_spark_has_an_owner_for_a_while(
    table: Managed, delta_spark: DeltaSpark
) -> None:
    delta_spark.sql(
        f"CREATE TABLE {table.name} (id BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"
    )
    table.expected.append([])
    table.append_by_spark()
    before = supported_features(table.ours.snapshot().protocol)

    assert table.ours.convert_to_managed(OWNER, {"backfill": "on-request"}).version == 2
    table.change()
    table.append()
    table.append()
    table.check(backfilled=2)
    both_refuse(table)
    table.ours.backfill()
    table.check()
    both_refuse(table)
    assert table.ours.checkpoint().version == 4
    table.append()
    table.check(backfilled=4)

    assert table.ours.convert_to_file_system().version == 6
    table.change()
    table.check()
    assert supported_features(table.ours.snapshot().protocol) == before
    table.append_by_spark()
    table.append()
    assert table.ours.checkpoint().version == 8
    table.append_by_spark()
    table.change("SET TBLPROPERTIES ('delta.checkpointInterval' = '11')")
    table.append_by_spark()
    assert f"{11:020}.checkpoint.parquet" in table.log()
    table.append()
    table.check()
    table.check_history(by_version=[1, 3], by_time=[2, 4, 7])

    assert table.ours.convert_to_managed(OWNER, {"backfill": "1"}).version == 13
    table.change()
    table.append()
    table.check()
    both_refuse(table)
    assert table.ours.convert_to_file_system().version == 15
    table.change()
    let_deltalake_write(table)


def let_deltalake_write(table: Managed) -> None:
    """It writes to no table that supports in-commit timestamps, which stay when the owner goes."""
    refused(
        table,
        table.append_by_deltalake,
        deltalake.exceptions.DeltaError,
        r"required: \[InCommitTimestamp\]",
    )
    table.change("DROP FEATURE inCommitTimestamp", versions=2)
    table.append_by_deltalake()
    deltalake.DeltaTable(str(table.root)).create_checkpoint()
    table.append()
    table.append_by_spark()
    table.append_by_deltalake()
    table.check()


@pytest.mark.parametrize(
    ("backfill", "backfilled"),
    [
        pytest.param("1", 3, marks=pytest.mark.deep),
        ("2", 2),
        pytest.param("direct", 3, marks=pytest.mark.deep),
    ],
)
def test_a_table_that_never_was_without_an_owner_is_taken_back(
    table: Managed, backfill: str, backfilled: int
) -> None:
    table.create(backfill)
    table.check()
    for _ in range(3):
        table.append()
    table.check(backfilled=backfilled)
    both_refuse(table)
    assert table.ours.convert_to_file_system().version == 4
    table.change()
    table.append_by_spark()
    table.append()
    table.check()
    # It may have an owner again.
    assert table.ours.convert_to_managed(OWNER).converted
    table.change()
    table.append()
    both_refuse(table)
    table.check_history(by_version=[3, 6])
