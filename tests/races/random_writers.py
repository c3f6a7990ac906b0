"""Tables and transactions by chance: every kind of action, on what the transaction finds in the table.

A `Table` says which features it has; `Writer` makes transactions on it, and keeps of each a `Work`: what
was read, by the transaction's own account, and what was staged. `serial_model` judges by that and by
the log.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile, Snapshot
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.log_builder import metadata
from tests.races.replayed_log import Log
from tests.table_builder import FAR_FUTURE_MS, Action, Files, Key, commits, key_of

__all__ = ["APPS", "JOB", "Condition", "Table", "Work", "Writer"]

Live = Mapping[str, Action]

PARTS: tuple[str | None, ...] = ("a", "b", None)
APPS = ("app", "other")
JOB = "job"
"""The application whose work is done once."""
_DOMAINS = ("mine", "yours")
_LISTED = ("appendOnly", "domainMetadata", "inCommitTimestamp", "invariants", "vacuumProtocolCheck")
_READER = frozenset({"deletionVectors", "vacuumProtocolCheck"})


@dataclass(frozen=True)
class Condition:
    """Rows that are looked for: those of a partition, or above a number, or both; or all.

    Attributes:
        part: the partition's value; None for any.
        above: less than their ``id``; None for any.
    """

    part: str | None = None
    above: int | None = None

    @property
    def expression(self) -> pc.Expression | None:
        """For `OptimisticTransaction.read_files`."""
        terms = [] if self.part is None else [pc.field("part") == self.part]
        if self.above is not None:
            terms.append(pc.field("id") > self.above)
        return None if not terms else terms[0] if len(terms) == 1 else terms[0] & terms[1]

    def may_hold_in(self, file: Action) -> bool:
        """Whether a file may have such rows, by its partition and its statistics."""
        highest = json.loads(file["stats"])["maxValues"]["id"]
        return self.concerns(file) and (self.above is None or highest > self.above)

    def concerns(self, file: Action) -> bool:
        """Whether a file is in a partition that may have such rows."""
        return self.part is None or file["partitionValues"].get("part") == self.part


@dataclass
class Work:
    """A transaction as its writer knows it.

    Attributes:
        name: the ``userMetadata`` of its commit, which no other has.
        base: the version that it read.
        conditions: the predicates of the files that it read.
        read: the files that it got, by path and the id of the deletion vector.
        apps: the versions of applications that it found, where it relies on them.
        domains: likewise, the configurations of metadata domains.
        adds: what it adds, by path.
        removes: what it removes, by path.
        set_apps: the versions that it sets.
        set_domains: the domains that it sets; None for one that it removes.
        protocol: what it sets.
        metadata: what it sets.
        outcome: the result, or the error.
    """

    name: str
    base: int = -1
    conditions: list[Condition] = field(default_factory=list)
    read: set[Key] = field(default_factory=set)
    apps: dict[str, int | None] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)
    adds: dict[str, AddFile] = field(default_factory=dict)
    removes: dict[str, RemoveFile] = field(default_factory=dict)
    set_apps: dict[str, int] = field(default_factory=dict)
    set_domains: dict[str, str | None] = field(default_factory=dict)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    outcome: object = None

    @property
    def is_blind(self) -> bool:
        """Whether it does nothing to files but add some, and has looked at none."""
        return not (self.removes or self.conditions)

    @property
    def is_data_kept(self) -> bool:
        """Whether it does nothing but put the same rows into other files."""
        others = self.set_apps or self.set_domains or self.protocol or self.metadata
        files = (*self.adds.values(), *self.removes.values())
        return not (others or any(file.data_change for file in files))

    @property
    def is_empty(self) -> bool:
        others = self.set_apps or self.set_domains or self.protocol or self.metadata
        return not (others or self.adds or self.removes)


@dataclass(frozen=True)
class Table:
    """What a table is like at version 0, in which it has two files in each partition.

    Attributes:
        partitioned: whether by ``part``.
        level: its ``delta.isolationLevel``; None where it doesn't say.
        features: what it supports beyond the oldest protocol; empty for that.
        timestamps: whether it has in-commit timestamps from the beginning.
        row_ids: whether row tracking is on; else it is only supported, if at all.
    """

    partitioned: bool
    level: str | None
    features: frozenset[str]
    timestamps: bool
    row_ids: bool

    @classmethod
    def by_chance(cls, rng: random.Random) -> Table:
        features: set[str] = set()
        if rng.random() < 0.75:
            features = {*_LISTED}
            features |= {name for name in ("deletionVectors", "rowTracking") if rng.random() < 0.7}
        return cls(
            partitioned=rng.random() < 0.8,
            level=rng.choice([None, "Serializable", "WriteSerializable", "WriteSerializable"]),
            features=frozenset(features),
            timestamps=bool(features) and rng.random() < 0.5,
            row_ids="rowTracking" in features and rng.random() < 0.7,
        )

    @property
    def files(self) -> Files:
        """Its log."""
        configuration = {} if self.level is None else {"delta.isolationLevel": self.level}
        if "deletionVectors" in self.features:
            configuration["delta.enableDeletionVectors"] = "true"
        first: list[Action] = [{"commitInfo": {"operation": "CREATE TABLE", "timestamp": 1}}]
        if self.timestamps:
            configuration["delta.enableInCommitTimestamps"] = "true"
            first[0]["commitInfo"] = {"inCommitTimestamp": 1, **first[0]["commitInfo"]}
        if self.row_ids:
            configuration["delta.enableRowTracking"] = "true"
            for name in ("RowId", "RowCommitVersion"):
                configuration[f"delta.rowTracking.materialized{name}ColumnName"] = f"_{name}"
        columns = ["part"] if self.partitioned else []
        first.append({"protocol": lowest_protocol(self.features).to_json()})
        first.append(metadata(configuration=configuration, partition_columns=columns))
        names = [f"{part}{number}" for part in PARTS for number in range(2)]
        for number, name in enumerate(names):
            file = self.file(name, PARTS[number // 2], number)
            if "rowTracking" in self.features:
                file = replace(file, base_row_id=number, default_row_commit_version=0)
            first.append({"add": file.to_json()})
        if "rowTracking" in self.features:
            mark = json.dumps({"rowIdHighWaterMark": len(names) - 1})
            domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
            first.append({"domainMetadata": domain})
        if "domainMetadata" in self.features:
            domain = {"domain": "mine", "configuration": "first", "removed": False}
            first.append({"domainMetadata": domain})
        return commits([first])

    def file(
        self, path: str, part: str | None, highest: int, *, changes: bool = True, rows: int = 1
    ) -> AddFile:
        """A data file, its ``id`` up to a number."""
        bounds = {"minValues": {"id": 0}, "maxValues": {"id": highest}}
        stats = json.dumps({"numRecords": rows, **bounds, "nullCount": {"id": 0}})
        values = {"part": part} if self.partitioned else {}
        return AddFile(path, values, len(path), 1, data_change=changes, stats=stats)


def lowest_protocol(features: frozenset[str]) -> Protocol:
    """The protocol that lists features; the oldest that anybody writes for none."""
    if not features:
        fields: Action = {"minReaderVersion": 1, "minWriterVersion": 2}
    else:
        fields = {
            "minReaderVersion": 3 if features & _READER else 1,
            "minWriterVersion": 7,
            "writerFeatures": sorted(features),
        }
        if features & _READER:
            fields["readerFeatures"] = sorted(features & _READER)
    return Protocol.from_json(fields, "the test's protocol")


class Writer:
    """Makes transactions, one after the other.

    Args:
        delta: the table as the engine has it.
        log: the table's log, from which the writer knows what it can change.
        table: what it is like.
        rng: what decides.
        name: what begins the names of all it makes.
    """

    def __init__(
        self, delta: DeltaTable, log: Log, table: Table, *, rng: random.Random, name: str
    ) -> None:
        self.works: list[Work] = []
        self._delta = delta
        self._log = log
        self._table = table
        self._rng = rng
        self._name = name
        self._numbers = itertools.count()

    def run(self, transactions: int) -> None:
        """Make so many transactions."""
        for _ in range(transactions):
            work = Work(self._new_name())
            self.works.append(work)
            if self._rng.random() < 0.12:
                self._once(work)
            else:
                self._optimistically(work)

    def _optimistically(self, work: Work) -> None:
        transaction = self._delta.transaction("WRITE", user_metadata=work.name)
        self._stage(transaction, work)
        try:
            work.outcome = transaction.commit()
        except DeltaError as error:
            work.outcome = error

    def _once(self, work: Work) -> None:
        number = self._rng.choice([1, 2])

        def stage(transaction: OptimisticTransaction) -> None:
            # Each try begins anew.
            fresh = Work(work.name)
            vars(work).update(vars(fresh))
            self._note_app(transaction, work, JOB)
            work.set_apps[JOB] = number
            self._stage(transaction, work)

        work.set_apps[JOB] = number
        try:
            work.outcome = self._delta.commit_once(
                JOB, number, "WRITE", stage, user_metadata=work.name
            )
        except DeltaError as error:
            work.outcome = error

    def _stage(self, transaction: OptimisticTransaction, work: Work) -> None:
        assert transaction.snapshot
        work.base = transaction.snapshot.version
        live = {file["path"]: file for file in self._log.state(work.base).files.values()}
        steps = self._steps(transaction.snapshot)
        for step in self._rng.choices(
            *zip(*steps.items(), strict=True), k=self._rng.choice([1, 2, 3])
        ):
            step(transaction, work, live)
        if work.is_empty:
            self._append(transaction, work, live)

    def _steps(self, snapshot: Snapshot) -> dict[Callable[..., None], int]:
        """What can be done to a table, and how often."""
        steps: dict[Callable[..., None], int] = {
            self._append: 6,
            self._read: 6,
            self._read_whole: 1,
            self._delete: 3,
            self._rewrite: 4,
            self._restate: 1,
            self._look_up: 1,
            self._set_app: 1,
            self._set_property: 1,
        }
        listed = snapshot.protocol.writer_features or frozenset()
        if "deletionVectors" in listed:
            steps[self._mark] = 2
        if "domainMetadata" in listed:
            steps |= {self._read_domain: 1, self._set_domain: 2}
        if snapshot.metadata.configuration.get("delta.enableInCommitTimestamps") != "true":
            steps[self._turn_timestamps_on] = 1
        steps[self._upgrade] = 1
        return steps

    def _append(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        for _ in range(self._rng.choice([1, 1, 2])):
            self._add(transaction, work, self._new_file(self._rng.choice(PARTS)))

    def _read(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        part = self._rng.choice(["a", "b"]) if self._table.partitioned else None
        condition = self._rng.choice(
            [Condition(part), Condition(part), Condition(part, 4), Condition(above=4), Condition()]
        )
        files = transaction.read_files(condition.expression, columns=["path", "deletionVector"])
        work.conditions.append(condition)
        work.read |= {key_of(file) for file in files.to_pylist()}

    def _read_whole(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        transaction.read_table()
        work.read |= {key_of(file) for file in live.values()}
        work.conditions.append(Condition())

    def _delete(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        for file in self._choose(work, live, self._rng.choice([1, 1, 2])):
            self._remove(transaction, work, file)

    def _rewrite(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        changes = self._rng.random() < 0.5
        for file in self._choose(work, live, self._rng.choice([1, 2])):
            self._remove(transaction, work, file, changes=changes)
            part = file["partitionValues"].get("part")
            self._add(transaction, work, self._new_file(part, changes=changes))

    def _mark(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        """Delete some more rows of a file."""
        for file in self._choose(work, live, 1):
            self._remove(transaction, work, file)
            vector = DeletionVectorDescriptor(
                "i", self._rng.choice(["wi5b=", "000ib"]) * 2, None, 8, 1
            )
            while vector.unique_id == key_of(file)[1]:
                vector = replace(vector, path_or_inline_dv=vector.path_or_inline_dv + "wi5b=")
            self._add(transaction, work, replace(_add_of(file), deletion_vector=vector))

    def _restate(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        """Commit a file again, with other tags."""
        for file in self._choose(work, live, 1):
            self._add(
                transaction, work, replace(_add_of(file, changes=False), tags={"t": work.name})
            )

    def _look_up(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        self._note_app(transaction, work, self._rng.choice(APPS))

    def _set_app(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        app = self._rng.choice(APPS)
        # Setting one is looking it up, whether or not it is done.
        found = self._note_app(transaction, work, app, ask=self._rng.random() < 0.5)
        work.set_apps[app] = (found or 0) + 1
        transaction.set_transaction(app, work.set_apps[app])

    def _read_domain(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        name = self._rng.choice(_DOMAINS)
        found = transaction.read_domain(name)
        work.domains[name] = found.configuration if found else None

    def _set_domain(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        assert transaction.snapshot
        name = self._rng.choice(_DOMAINS)
        found = transaction.snapshot.domains.get(name)
        work.domains[name] = found.configuration if found else None
        if found and self._rng.random() < 0.4:
            work.set_domains[name] = None
            transaction.remove_domain(name)
        else:
            work.set_domains[name] = work.name
            transaction.set_domain(name, work.name)

    def _set_property(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        self._configure(transaction, work, {"owner": work.name})

    def _turn_timestamps_on(
        self, transaction: OptimisticTransaction, work: Work, live: Live
    ) -> None:
        self._support(transaction, work, "inCommitTimestamp")
        self._configure(transaction, work, {"delta.enableInCommitTimestamps": "true"})

    def _upgrade(self, transaction: OptimisticTransaction, work: Work, live: Live) -> None:
        """Support one more feature, also ones that bind what others prepare."""
        options = [("domainMetadata", "rowTracking"), ("inCommitTimestamp",), ("checkConstraints",)]
        self._support(transaction, work, *self._rng.choice(options))

    def _support(self, transaction: OptimisticTransaction, work: Work, *features: str) -> None:
        assert transaction.snapshot
        old = work.protocol or transaction.snapshot.protocol
        listed = old.writer_features or frozenset({"appendOnly", "invariants"})
        if not listed >= {*features}:
            work.protocol = lowest_protocol(listed | {*features})
            transaction.set_protocol(work.protocol)

    def _configure(
        self, transaction: OptimisticTransaction, work: Work, properties: dict[str, str]
    ) -> None:
        assert transaction.snapshot
        old = work.metadata or transaction.snapshot.metadata
        work.metadata = replace(old, configuration={**old.configuration, **properties})
        transaction.set_metadata(work.metadata)

    def _note_app(
        self, transaction: OptimisticTransaction, work: Work, app: str, *, ask: bool = True
    ) -> int | None:
        assert transaction.snapshot
        if ask:
            found = transaction.transaction_version(app)
        else:
            txn = transaction.snapshot.transactions.get(app)
            found = txn.version if txn else None
        work.apps[app] = found
        return found

    def _choose(self, work: Work, live: Live, count: int) -> list[Action]:
        """Some files: of those that were read, if any were."""
        read = {path for path, _ in work.read}
        free = live.keys() - work.adds.keys() - work.removes.keys()
        paths = sorted(free & read or free)
        return [live[path] for path in self._rng.sample(paths, min(count, len(paths)))]

    def _add(self, transaction: OptimisticTransaction, work: Work, file: AddFile) -> None:
        work.adds[file.path] = file
        transaction.add_file(file)

    def _remove(
        self, transaction: OptimisticTransaction, work: Work, file: Action, *, changes: bool = True
    ) -> None:
        removed = _add_of(file)
        work.removes[removed.path] = RemoveFile(
            removed.path,
            data_change=changes,
            deletion_timestamp=FAR_FUTURE_MS,
            deletion_vector=removed.deletion_vector,
        )
        transaction.remove_file(work.removes[removed.path])

    def _new_name(self) -> str:
        return f"{self._name}{next(self._numbers)}"

    def _new_file(self, part: str | None, *, changes: bool = True) -> AddFile:
        return self._table.file(
            self._new_name(),
            part,
            self._rng.randrange(10),
            changes=changes,
            rows=self._rng.choice([1, 2, 3]),
        )


def _add_of(file: Action, *, changes: bool = True) -> AddFile:
    vector = file["deletionVector"]
    return AddFile(
        file["path"],
        file["partitionValues"],
        file["size"],
        file["modificationTime"],
        data_change=changes,
        stats=file["stats"],
        deletion_vector=vector and DeletionVectorDescriptor.from_json(vector, "the test's"),
    )
