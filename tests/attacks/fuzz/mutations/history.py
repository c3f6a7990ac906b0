"""Hostile actions in the history: every form of the log has them, and the oracle knows them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from tests.attacks.fuzz.files import OLD_MS, File
from tests.attacks.fuzz.hostile import hostile_path, hostile_text
from tests.attacks.fuzz.tables import data_file, stats
from tests.attacks.fuzz.world import Trust, World, mutation
from tests.table_builder import Action


def _commit(world: World, rng: random.Random) -> list[Action]:
    return rng.choice(world.history)


def _path_action(kind: str, path: str) -> Action:
    fields: dict[str, Any] = {"path": path, "partitionValues": {"p-part": "x"}, "dataChange": True}
    fields["size"] = len(data_file())
    if kind == "add":
        return {"add": {**fields, "modificationTime": OLD_MS, "stats": stats()}}
    if kind == "remove":
        return {"remove": {**fields, "deletionTimestamp": OLD_MS, "extendedFileMetadata": True}}
    return {"cdc": {**fields, "dataChange": False}}


@mutation(1, weight=8, trust=Trust.RIGHT)
def a_path(world: World, rng: random.Random) -> str:
    """A file action with a hostile path."""
    kind = rng.choice(("add", "add", "add", "remove", "remove", "cdc"))
    path = hostile_path(world.places, rng)
    _commit(world, rng).append(_path_action(kind, path))
    world.inventory.append(path)
    return f"{kind} {path[:120]!r}"


@mutation(1, weight=4, trust=Trust.RIGHT)
def a_path_that_goes(world: World, rng: random.Random) -> str:
    """A hostile path that is added and removed: what vacuum, restore and change feeds look at."""
    path = hostile_path(world.places, rng)
    first = rng.randrange(len(world.history) - 1)
    world.history[first].append(_path_action("add", path))
    world.history[rng.randrange(first + 1, len(world.history))].append(_path_action("remove", path))
    return f"{path[:120]!r} from {first}"


@mutation(1, weight=2, trust=Trust.RIGHT)
def many_paths(world: World, rng: random.Random) -> str:
    """Many hostile paths in one table."""
    paths = [hostile_path(world.places, rng) for _ in range(rng.choice((5, 60)))]
    for path in paths:
        _commit(world, rng).append(_path_action(rng.choice(("add", "remove", "cdc")), path))
    return f"{len(paths)} paths"


VECTORS: tuple[dict[str, Any], ...] = (
    {"storageType": "p", "pathOrInlineDv": "{out}/vector.bin"},
    {"storageType": "p", "pathOrInlineDv": "file:{out}/vector.bin"},
    {"storageType": "p", "pathOrInlineDv": "/proc/self/environ"},
    {"storageType": "p", "pathOrInlineDv": "/dev/zero"},
    {"storageType": "p", "pathOrInlineDv": "relative/x.bin"},
    {"storageType": "u", "pathOrInlineDv": "{out}/^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "../{name}/^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "..^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "a\0b^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "%2e%2e/{name}/^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "s3://evil/^-aqEH.-t@S}}K{{vb[*k^"},
    {"storageType": "u", "pathOrInlineDv": "short"},
    {"storageType": "u", "pathOrInlineDv": ""},
    {"storageType": "u", "pathOrInlineDv": "\x00" * 20},
    {"storageType": "u", "pathOrInlineDv": "é" * 20},
    {"storageType": "u", "pathOrInlineDv": "~" * 20},
    {"storageType": "i", "pathOrInlineDv": ""},
    {"storageType": "i", "pathOrInlineDv": "wi5b=0000"},
    {"storageType": "i", "pathOrInlineDv": "0" * 40},
    {"storageType": "i", "pathOrInlineDv": "é" * 40},
    {"storageType": "x", "pathOrInlineDv": "what"},
    {"storageType": "", "pathOrInlineDv": ""},
    {"storageType": "u\0", "pathOrInlineDv": "^-aqEH.-t@S}}K{{vb[*k^"},
)


@mutation(1, weight=4, trust=Trust.RIGHT)
def a_vector(world: World, rng: random.Random) -> str:
    """A deletion vector somewhere else, or of no sense."""
    places = world.places
    vector = dict(rng.choice(VECTORS))
    text = vector["pathOrInlineDv"].replace("{out}", places.outside)
    text = text.replace("{name}", places.outside.rpartition("/")[2])
    if vector["storageType"] == "p" and rng.random() < 0.6:
        text = hostile_path(places, rng)
    vector["pathOrInlineDv"] = text.replace("{{", "{").replace("}}", "}")
    vector["offset"] = rng.choice((1, 1, 1, 0, -1, None, 5, 2**31 - 1))
    vector["sizeInBytes"] = rng.choice((40, 34, 0, -1, 1, 2**31 - 1))
    vector["cardinality"] = rng.choice((6, 6, 0, -1, 2**28, 2**62))
    adds = [a["add"] for commit in world.history for a in commit if "add" in a]
    add = copy.deepcopy(rng.choice(adds))
    add["deletionVector"] = {name: value for name, value in vector.items() if value is not None}
    add["path"] = f"part=x/{rng.choice(('a', 'f', 'unknown'))}.parquet"
    commit = rng.randrange(len(world.history))
    world.history[commit].append({"add": add})
    if rng.random() < 0.5 and commit + 1 < len(world.history):
        removed = {**add, "deletionTimestamp": OLD_MS, "extendedFileMetadata": True}
        for name in ("modificationTime", "stats"):
            removed.pop(name, None)
        world.history[-1].append({"remove": removed})
    return f"{vector}"[:300]


@mutation(1, weight=3)
def a_text(world: World, rng: random.Random) -> str:
    """A hostile text where people read: operations, names, domains, applications, values, tags."""
    text = hostile_text(rng)
    last = world.history[-1]
    kind = rng.randrange(8)
    if kind == 0:
        info = world.history[rng.randrange(len(world.history))][0]["commitInfo"]
        field = rng.choice(
            ("operation", "engineInfo", "userMetadata", "userName", "txnId", "notebook")
        )
        info[field] = text
        return f"commitInfo.{field} {text[:60]!r}"
    if kind == 1:
        _metadata(world)["name" if rng.random() < 0.5 else "description"] = text
    elif kind == 2:
        last.append({"txn": {"appId": text, "version": 1}})
    elif kind == 3:
        last.append({"domainMetadata": {"domain": text, "configuration": text, "removed": False}})
    elif kind == 4:
        last.append(_path_action("add", "part=x/f2.parquet"))
        last[-1]["add"]["partitionValues"] = {"p-part": text}
    elif kind == 5:
        last.append(_path_action("add", "part=x/f2.parquet"))
        last[-1]["add"]["tags"] = {text: text}
    elif kind == 6:
        _metadata(world)["id"] = text
    else:
        last.append({text[:200] or "novelty": {"x": text}})
    return f"kind {kind} {text[:60]!r}"


def _metadata(world: World) -> Any:
    return next(a["metaData"] for commit in world.history for a in commit if "metaData" in a)


PROPERTIES = (
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.logRetentionDuration",
    "delta.deletedFileRetentionDuration",
    "delta.setTransactionRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.columnMapping.mode",
    "delta.columnMapping.maxColumnId",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.appendOnly",
    "delta.isolationLevel",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.managedCommit.commitOwner",
    "delta.managedCommit.commitOwnerConf",
    "delta.coordinatedCommits.commitCoordinator-preview",
    "delta.universalFormat.enabledFormats",
    "delta.enableIcebergCompatV2",
    "delta.constraints.c",
    "delta.minReaderVersion",
    "delta.feature.evil",
    "delta.randomizeFilePrefixes",
    "delta.targetFileSize",
    "evil\x1b[31m",
)
VALUES = (
    "0",
    "-1",
    "1",
    "9223372036854775808",
    "1e400",
    "true",
    "interval 0 days",
    "interval 5 weeks",
)
VALUES += (
    "interval 99999999999999999999 weeks",
    "interval -3 days",
    "INTERVAL 1 month",
    "none",
    "id",
)
VALUES += ('{"tableId":"x"}', "{", "[]", "sql", "the-owner", "../x", "id > 0", "`", "\\")


@mutation(1, weight=4)
def a_property(world: World, rng: random.Random) -> str:
    """A property with a hostile value."""
    configuration = _metadata(world)["configuration"]
    name = rng.choice(PROPERTIES)
    value = rng.choice(VALUES) if rng.random() < 0.7 else hostile_text(rng)
    configuration[name] = value
    return f"{name} = {value[:80]!r}"


TYPES: tuple[Any, ...] = (
    "decimal(99999999999,2)",
    "decimal(38,-5)",
    "decimal(1e9,1)",
    "char(-1)",
    "varchar(99999999999999999999)",
    "interval",
    "void",
    "evil\x1b[31m",
    "",
    None,
    5,
    [],
    {},
    {"type": "array"},
    {"type": "map", "keyType": "string"},
    {"type": "struct", "fields": None},
    {"type": "struct", "fields": [None]},
    {"type": "struct", "fields": [{}]},
    {"type": "udt", "class": "os.system", "sqlType": "long"},
    {"type": "array", "elementType": "no-type", "containsNull": "x"},
    {"type": "struct", "fields": [{"name": "id", "type": "long"}] * 2},
)


@mutation(1, weight=3)
def a_schema(world: World, rng: random.Random) -> str:
    """A schema with a hostile column."""
    meta = _metadata(world)
    schema = json.loads(meta["schemaString"])
    field = copy.deepcopy(rng.choice(schema["fields"]))
    kind = rng.randrange(6)
    if kind == 0:
        field["type"] = rng.choice(TYPES)
    elif kind == 1:
        field["name"] = rng.choice(
            (hostile_text(rng), None, 5, field["name"], field["name"].upper())
        )
    elif kind == 2:
        field["metadata"] = rng.choice((None, [], 5, {"delta.columnMapping.id": "x"}))
    elif kind == 3:
        value = rng.choice((2**64, -1, 1.5, "1", None, 1, 2, {}))
        field["metadata"] = {**(field["metadata"] or {}), "delta.columnMapping.id": value}
    elif kind == 4:
        value = rng.choice((hostile_text(rng), None, 7, "c-id", "../x", ""))
        field["metadata"] = {**field["metadata"], "delta.columnMapping.physicalName": value}
    else:
        key = rng.choice(("delta.generationExpression", "delta.invariants", "CURRENT_DEFAULT",
                          "delta.identity.start", "delta.typeChanges",
                          "__CHAR_VARCHAR_TYPE_STRING"))  # fmt: skip
        field["metadata"] = {
            **field["metadata"],
            key: rng.choice((hostile_text(rng), 5, [], {}, [{}])),
        }
    place = rng.randrange(3)
    if place == 0:
        schema["fields"].append(field)
    else:
        schema["fields"][rng.randrange(len(schema["fields"]))] = field
    meta["schemaString"] = json.dumps(schema)
    return f"{field}"[:200]


@mutation(1, weight=2)
def a_protocol(world: World, rng: random.Random) -> str:
    """Versions and features that nobody knows, or that contradict each other."""
    protocol = next(a["protocol"] for commit in world.history for a in commit if "protocol" in a)
    change: dict[str, Any] = rng.choice(
        (
            {"minReaderVersion": 99},
            {"minWriterVersion": 99},
            {"minReaderVersion": -1},
            {"minReaderVersion": 2**31 - 1, "minWriterVersion": -(2**31)},
            {"readerFeatures": ["evil\x1b[31m"], "writerFeatures": ["evil\x1b[31m"]},
            {"readerFeatures": [], "writerFeatures": []},
            {"writerFeatures": ["x" * 1000] * 1000},
            {"readerFeatures": ["deletionVectors"] * 3, "writerFeatures": []},
            {"readerFeatures": [""], "writerFeatures": [""]},
            {"writerFeatures": ["managedCommit", "inCommitTimestamp"]},
            {"writerFeatures": ["rowTracking", "domainMetadata", "identityColumns"]},
            {"minReaderVersion": 3, "minWriterVersion": 7},
        )
    )
    protocol.update(change)
    return f"{change}"[:200]


@mutation(1, weight=3)
def a_second_one(world: World, rng: random.Random) -> str:
    """An action that a commit or the whole log has once, twice, with another content or the same."""
    commit = _commit(world, rng)
    action = copy.deepcopy(rng.choice(commit))
    kind = next(iter(action))
    if rng.random() < 0.5 and isinstance(action[kind], dict):
        for name in (
            "size",
            "version",
            "id",
            "minWriterVersion",
            "deletionTimestamp",
            "configuration",
        ):
            if name in action[kind]:
                action[kind][name] = {"size": 7, "version": 99, "id": "another", "minWriterVersion": 7,
                                      "deletionTimestamp": 5, "configuration": {}}[name]  # fmt: skip
    target = commit if rng.random() < 0.7 else _commit(world, rng)
    target.insert(rng.randrange(len(target) + 1), action)
    return f"{kind} again"


@mutation(1, trust=Trust.RIGHT)
def spellings(world: World, rng: random.Random) -> str:
    """One file by several spellings of its path."""
    root = world.places.root
    names = ("part=x/é.parquet", "part=x/%c3%a9.parquet", "part=x/%C3%A9.parquet")
    names += (f"{root}/part=x/%C3%A9.parquet", f"file:{root}/part=x/é.parquet")
    world.tree["part=x/é.parquet"] = File(data_file())
    world.trust = Trust.OPEN
    for name in rng.sample(names, 3):
        _commit(world, rng).append(_path_action(rng.choice(("add", "add", "remove")), name))
    return "of one file"


@mutation(1, weight=0.5)
def missing_actions(world: World, rng: random.Random) -> str:
    """No protocol, no metadata, an empty commit."""
    kind = rng.choice(("protocol", "metaData", "commitInfo", "all"))
    for commit in world.history if kind != "all" else [_commit(world, rng)]:
        commit[:] = [action for action in commit if kind not in action and kind != "all"]
    return f"no {kind}"
