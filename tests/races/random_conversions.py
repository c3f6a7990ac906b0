"""What goes on about a managed table beside its writers, by chance: conversions and readers.

A conversion is a `Work` like any other, so that `serial_model` judges it as well: it sets a protocol and
metadata, and reads no files. Its commit doesn't bear the name of the work; `Converter.name_commits` sees
to that.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_delta.engine import CommitResult, DeltaTable, Snapshot
from airflow_delta.engine.errors import DeltaError, InvalidArgumentError
from airflow_delta.engine.transaction.conversion import (
    ConversionResult,
    convert_to_file_system,
    convert_to_managed,
)
from tests.races.random_writers import Work, lowest_protocol
from tests.races.replayed_log import Log
from tests.races.stepped_world import World
from tests.table_builder import State, state_of

__all__ = ["POLICIES", "Converter", "Reader"]

POLICIES = ["1", "2", "3", "on-request", "direct"]

_OWNER, _CONF = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
_TIMESTAMPS = "delta.enableInCommitTimestamps"


class Converter:
    """Gives a table to owners, and takes it back.

    Args:
        delta: the table.
        owners: the names of those that it may be given to.
        rng: what decides.
        name: what begins the names of all its works.

    Attributes:
        works: what it has tried; a conversion of what needs none isn't one.
        results: what has become of the works that were done.
    """

    def __init__(
        self, delta: DeltaTable, owners: Sequence[str], *, rng: random.Random, name: str
    ) -> None:
        self.works: list[Work] = []
        self.results: dict[str, ConversionResult] = {}
        self._delta = delta
        self._owners = owners
        self._rng = rng
        self._names = (f"{name}{number}" for number in itertools.count())
        self._policies: dict[str, str] = {}

    def run(self, conversions: int) -> None:
        """Make so many conversions."""
        for _ in range(conversions):
            self.convert(self._rng.choice([*self._owners, None]))

    def convert(self, owner: str | None) -> None:
        """Give the table to an owner, or take it back."""
        work, policy = Work(next(self._names)), self._rng.choice(POLICIES)
        bases: list[Snapshot] = []

        def newest() -> Snapshot:
            bases.append(self._delta._newest.get())
            return bases[-1]

        storage, owners = self._delta.storage, self._delta._owners
        try:
            if owner is None:
                result = convert_to_file_system(storage, newest, owners)
            else:
                conf = {"backfill": policy}
                result = convert_to_managed(storage, newest, owners, owner, conf)
        except InvalidArgumentError:
            present = bases[-1].properties.commit_owner
            assert None not in (owner, present), "there was no reason to refuse the conversion"
            return
        except DeltaError as error:
            work.outcome = error
        else:
            present = bases[-1].properties.commit_owner
            assert result.owner == owner
            assert result.converted == (present != owner)
            if not result.converted:
                return
            self.results[work.name] = result
        self._policies[work.name] = policy
        _stage(work, bases[-1], owner)
        self.works.append(work)

    def name_commits(self, log: Log) -> Iterator[str]:
        """Write the names of the works into their commits: what is wrong with these.

        Args:
            log: the table's, of which nobody else has looked at the names yet.
        """
        for work in self.works:
            result = self.results.get(work.name)
            if result is None:
                continue
            commit = log.commits[result.version]
            if commit.info["operation"] not in ("SET TBLPROPERTIES", "DROP FEATURE"):
                yield f"version {result.version} isn't the conversion {work.name}: {commit}"
            commit.info["userMetadata"] = work.name
            work.outcome = CommitResult(result.version, commit.info["timestamp"])
            assert work.metadata
            if result.owner is not None:
                (metadata,) = commit.of("metaData")
                text = metadata["configuration"][_CONF]
                if json.loads(text).get("backfill") != self._policies[work.name]:
                    yield f"the conversion {work.name} has given its owner {text}"
                _configure(work, {_CONF: text})


def _stage(work: Work, base: Snapshot, owner: str | None) -> None:
    """What a conversion sets, as far as it is known without its commit."""
    work.base, work.metadata = base.version, base.metadata
    listed = base.protocol.writer_features or frozenset({"appendOnly", "invariants"})
    if owner is None:
        work.protocol = lowest_protocol(listed - {"managedCommit"})
        old = base.metadata.configuration
        kept = {name: old[name] for name in old.keys() - {_OWNER, _CONF}}
        work.metadata = replace(base.metadata, configuration=kept)
    else:
        work.protocol = lowest_protocol(listed | {"inCommitTimestamp", "managedCommit"})
        _configure(work, {_TIMESTAMPS: "true", _OWNER: owner})


def _configure(work: Work, properties: dict[str, str]) -> None:
    assert work.metadata
    configuration = {**work.metadata.configuration, **properties}
    work.metadata = replace(work.metadata, configuration=configuration)


class Reader:
    """Reads a table again and again.

    Args:
        world: the table.
        rng: what decides.
    """

    def __init__(self, world: World, *, rng: random.Random) -> None:
        self.seen: list[tuple[int, State]] = []
        self._world = world
        self._rng = rng
        self._kind = rng.choice(["fresh", "fresh", "follower", "stranger"])
        self._delta = world.client()
        if self._kind == "stranger":
            self._delta = DeltaTable(world.table.uri)
            self._delta.__dict__["storage"] = world.client().storage

    def run(self, times: int) -> None:
        """Read so often."""
        newest = -1
        for _ in range(times):
            stranger = self._kind == "stranger"
            oldest = self._world.stranger_version() if stranger else self._world.version()
            follows = self._kind == "follower"
            snapshot = self._delta._newest.get() if follows else self._delta.snapshot()
            found = snapshot.version
            assert found >= oldest, f"{self._kind} reader: {found} is older than {oldest}"
            assert found >= newest, f"{self._kind} reader: {newest} went away for {found}"
            newest = found
            self.seen.append((found, state_of(snapshot)))
            if found and self._rng.random() < 0.3:
                older = self._rng.randrange(found)
                self.seen.append((older, state_of(self._delta.snapshot(older))))
