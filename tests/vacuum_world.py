"""Tables with a past, for vacuums: what was written, removed, lost and left behind, and when.

A `World` is a history of commits with their times, and the files that there are, each with its age. What
a vacuum should do is worked out from these with sets and dictionaries, file by file (`World.vacuumed`,
`World.named`, `World.oldest_whole`); nothing is shared with the engine but `z85.encode`, by which
descriptors name their files.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import SCHEMA, add, metadata, remove
from tests.table_builder import Action, Files, State, commit_file, lines, replay

__all__ = ["DAY_MS", "NOW_MS", "RETENTION_MS", "World", "random_world", "vector"]

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
NOW_MS = 45_000 * DAY_MS  # in the year 2093, so that checkpoints made today keep the tombstones
RETENTION_MS = 7 * DAY_MS
CUTOFF_MS = NOW_MS - RETENTION_MS

PARTITIONS = ("part", "_p")
FOLDERS = [
    # On the disk, and in the log.
    ("", ""),
    ("part=x/", "part=x/"),
    ("part=a b/", "part=a%20b/"),
    ("part=a%20b/", "part=a%2520b/"),
    ("part=2024-01-01 00%3A00/", "part=2024-01-01%2000%253A00/"),
    ("part=a#b?c/", "part=a%23b%3Fc/"),
    ("part=é/", "part=%C3%A9/"),
    ("part=ü/", "part=ü/"),
    ("_p=1/", "_p=1/"),
    ("trailing./", "trailing./"),
]
# Nobody may touch these, however old they are.
HIDDEN = [
    "_q=1/{}",
    "_temporary/{}",
    "part=x/.{}.crc",
    ".hoodie/a/{}",
    "_{}",
    "_change_data/_x/{}",
    "sub/_change_data/{}",
    "other/_delta_log/{}.json",
    "other/part=1/{}",
]
ABSOLUTE = ("{root}/{path}", "file:{root}/{path}", "file://{root}/{path}")


def vector(file: uuid.UUID, offset: int = 1, prefix: str = "") -> Action:
    """A descriptor of a deletion vector in a file below the table."""
    place = prefix + z85.encode(file.bytes)
    return {"storageType": "u", "pathOrInlineDv": place, "offset": offset, "sizeInBytes": 34,
            "cardinality": 1}  # fmt: skip


@dataclass
class World:
    """A table and what lies around in its directory.

    Attributes:
        root: its location.
        history: the actions of its commits.
        times: when each was made, in epoch ms.
        disk: size and time of each file that is there, by path; without those of the log.
        vectors: the files of deletion vectors, by ``pathOrInlineDv``.
        hidden: the files on the disk that nobody may look at.
    """

    root: str
    history: list[list[Action]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    disk: dict[str, tuple[int, int]] = field(default_factory=dict)
    vectors: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    # What should happen.

    def vacuumed(self, cutoff_ms: int = CUTOFF_MS) -> set[str]:
        """What a full vacuum deletes."""
        needed = self.needed(cutoff_ms)
        old = {path for path, (_, time) in self.disk.items() if time < cutoff_ms}
        return old - self.hidden - needed

    def named(self, cutoff_ms: int = CUTOFF_MS, start: int = 0) -> set[str]:
        """What a lite vacuum deletes, there or not; it begins with the commit ``start``."""
        found: set[str] = set()
        for time, commit in zip(self.times[start:], self.history[start:], strict=True):
            for action in commit if time <= cutoff_ms else ():
                file = action.get("remove")
                if file and (file.get("deletionTimestamp") or 0) < cutoff_ms:
                    found |= {*self.files_of(file)}
                if "cdc" in action:
                    found |= {*self.files_of(action["cdc"])}
        return found - self.hidden - self.needed(cutoff_ms)

    def oldest_whole(self, left: set[str], earliest: int = 0) -> int:
        """The oldest version from which on all files of all versions are among those that are left.

        Those of the newest count as such: if they are lost, that isn't a vacuum's matter.
        """
        there = left | self._files_of(replay(self.history))
        oldest = len(self.history) - 1
        for version in range(oldest - 1, earliest - 1, -1):
            if self._files_of(replay(self.history[: version + 1])) - there:
                break
            oldest = version
        return oldest

    def needed(self, cutoff_ms: int) -> set[str]:
        """What live files are, and removed ones whose tombstones haven't expired."""
        state = replay(self.history)
        recent = {
            key: file
            for key, file in state.tombstones.items()
            if (file["deletionTimestamp"] or 0) >= cutoff_ms
        }
        return self._files_of(State(files={**state.files, **recent}))

    def _files_of(self, state: State) -> set[str]:
        return {path for file in state.files.values() for path in self.files_of(file)}

    def files_of(self, file: Action) -> Iterator[str]:
        """The files on the disk that an action is about, if they are this table's."""
        path = unquote(file["path"])
        for form in ABSOLUTE:
            path = path.removeprefix(form.format(root=self.root, path=""))
        if "://" not in path and not path.startswith(("/", "file:")):
            yield path
        descriptor = file.get("deletionVector")
        if descriptor and descriptor["pathOrInlineDv"] in self.vectors:
            yield self.vectors[descriptor["pathOrInlineDv"]]

    # The files.

    def log(self) -> Files:
        return {commit_file(v): lines(actions) for v, actions in enumerate(self.history)}

    def put(self, storage: MemoryStorage, log: Files | None = None) -> None:
        """Lay it out in memory, by default with the log as commits."""
        for path, content in (log or self.log()).items():
            storage.replace(path, content)
            name = path.removeprefix("_delta_log/")
            if name[:20].isdigit():
                storage.set_modified(path, self.times[int(name[:20])])
        for path, (size, time) in self.disk.items():
            storage.replace(path, b"x" * size)
            storage.set_modified(path, time)

    def lay_out(self) -> None:
        """Lay it out in the directory that is its root."""
        for path, content in self.log().items():
            self._write(path, content, self.times[int(path[11:31])])
        for path, (size, time) in self.disk.items():
            self._write(path, b"x" * size, time)

    def _write(self, path: str, content: bytes, time_ms: int) -> None:
        file = Path(self.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def schema() -> dict[str, Any]:
    column = {"name": "_p", "type": "string", "nullable": True, "metadata": {}}
    return {**SCHEMA, "fields": [*SCHEMA["fields"], column]}


FEATURES = ["deletionVectors", "changeDataFeed"]
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": FEATURES[:1],
        "writerFeatures": FEATURES,
    }
}


def random_world(root: str, seed: int, **configuration: str) -> World:
    """A table of up to ten commits in the last forty days, from a seed."""
    return _Maker(root, random.Random(seed)).world(configuration)


class _Maker:
    def __init__(self, root: str, dice: random.Random) -> None:
        self._world = World(root)
        self._dice = dice
        self._live: dict[str, Action] = {}
        self._removed: list[str] = []
        self._number = 0
        self._vector_files = [
            (uuid.UUID(int=dice.getrandbits(128), version=4), prefix)
            for prefix in ("", "", "aB", "é")
        ]

    def world(self, configuration: dict[str, str]) -> World:
        world, dice = self._world, self._dice
        count = dice.randint(3, 10)
        days = sorted(dice.sample(range(40 * 24), count), reverse=True)
        world.times = [NOW_MS - hours * HOUR_MS - 1 for hours in days]
        for version, time in enumerate(world.times):
            first = [PROTOCOL, metadata(
                configuration=configuration, partition_columns=PARTITIONS, schema=schema()
            )]  # fmt: skip
            actions = first if version == 0 else [{"commitInfo": {"operation": "WRITE"}}]
            for _ in range(dice.randint(1, 5)):
                actions += self._change(time, {key_path(action) for action in actions})
            world.history.append(actions)
        self._clutter()
        return world

    def _change(self, time: int, taken: set[str]) -> list[Action]:
        """Something that happens to a file; each file is in one change of a commit alone."""
        dice = self._dice
        live = sorted(self._live.keys() - taken)
        match dice.choice(["add", "add", "remove", "remove", "vector", "cdc", "restore"]):
            case "remove" if live:
                return [self._removal(dice.choice(live), time)]
            case "vector" if live:
                path = dice.choice(live)
                removal = self._removal(path, time)
                return [removal, self._addition(path, time, with_vector=True)]
            case "cdc":
                path = self._new("_change_data/", "_change_data/", time)
                fields = {"partitionValues": {}, "size": 3, "dataChange": False}
                return [{"cdc": {"path": path, **fields}}]
            case "restore" if sorted({*self._removed} - taken - self._live.keys()):
                path = dice.choice(sorted({*self._removed} - taken - self._live.keys()))
                return [self._addition(path, time, with_vector=dice.random() < 0.3)]
        path = self._new(*dice.choice(FOLDERS), time)
        if dice.random() < 0.1:
            # Only a directory has several names.
            form = dice.choice(ABSOLUTE if self._world.root.startswith("/") else ABSOLUTE[:1])
            path = form.format(root=self._world.root, path=path)
        elif dice.random() < 0.05:
            self._world.disk.pop(unquote(path), None)
            path = f"s3://elsewhere/t/{path}"
        return [self._addition(path, time, with_vector=dice.random() < 0.3)]

    def _new(self, folder: str, encoded: str, time: int) -> str:
        """A new file; its path in the log."""
        self._number += 1
        name = f"f{self._number}.parquet"
        if self._dice.random() < 0.95:  # else it is lost
            self._world.disk[folder + name] = (self._dice.randint(1, 9), time - HOUR_MS)
        return encoded + name

    def _addition(self, path: str, time: int, *, with_vector: bool) -> Action:
        fields: Action = {"size": 5}
        if with_vector:
            file, prefix = self._dice.choice(self._vector_files)
            fields["deletionVector"] = vector(file, self._dice.randint(1, 999), prefix)
            place = fields["deletionVector"]["pathOrInlineDv"]
            name = f"deletion_vector_{file}.bin"
            self._world.vectors[place] = f"{prefix}/{name}" if prefix else name
            self._world.disk.setdefault(self._world.vectors[place], (2, time - HOUR_MS))
        action = add(path, **fields)
        self._live[path] = action["add"]
        return action

    def _removal(self, path: str, time: int) -> Action:
        fields: Action = {"deletionTimestamp": time - self._dice.choice([0, 1, HOUR_MS])}
        if self._dice.random() < 0.1:
            del fields["deletionTimestamp"]
        live = self._live.pop(path)
        if "deletionVector" in live:
            fields["deletionVector"] = live["deletionVector"]
        self._removed.append(path)
        action = remove(path, **fields)
        if "deletionTimestamp" not in fields:
            del action["remove"]["deletionTimestamp"]
        elif self._dice.random() < 0.7:  # tables of old writers don't tell
            action["remove"] |= {"extendedFileMetadata": True, "partitionValues": {}, "size": 5}
        return action

    def _clutter(self) -> None:
        """Files that no commit names, and what doesn't belong to the table."""
        dice, disk = self._dice, self._world.disk
        folders = [folder for folder, _ in FOLDERS]
        for folder in [*folders, "_change_data/", "new/", "part=x/deletion_vectors/"]:
            disk[f"{folder}orphan-{dice.randint(0, 99)}"] = (7, self._some_time())
        disk[f"deletion_vector_{uuid.UUID(int=dice.getrandbits(128))}.bin"] = (1, self._some_time())
        for form in HIDDEN:
            path = form.format(f"h{dice.randint(0, 99)}")
            disk[path] = (1, self._some_time())
            self._world.hidden.add(path)

    def _some_time(self) -> int:
        near = self._dice.choice([CUTOFF_MS - 1, CUTOFF_MS, CUTOFF_MS + 1])
        return self._dice.choice([near, NOW_MS - self._dice.randint(1, 40) * DAY_MS])


def key_path(action: Action) -> str:
    """The path of a file action, or nothing."""
    for kind in ("add", "remove"):
        if kind in action:
            return str(action[kind]["path"])
    return json.dumps(action)
