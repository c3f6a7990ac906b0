"""Small files that say much: repeated rows, compressed zeros, long paths, wide schemas, huge vectors."""

from __future__ import annotations

import json
import random

from tests.attacks.fuzz.files import OLD_MS
from tests.attacks.fuzz.mutations.history import _metadata, _path_action
from tests.attacks.fuzz.tables import VECTOR_NAME
from tests.attacks.fuzz.world import Trust, World, mutation


@mutation(2, weight=1.5)
def repeated_rows(world: World, rng: random.Random) -> str | None:
    """A checkpoint or sidecar of two million identical rows, or with columns of compressed zeros."""
    names = sorted(name for name in world.blobs if name.startswith("parquet-"))
    if not names:
        return None
    name = rng.choice(names)
    paths = world.log_files(".parquet") or [f"_delta_log/{4:020}.checkpoint.parquet"]
    path = rng.choice(paths)
    world.put(path, world.blobs[name])
    return f"{name} as {path}"


@mutation(2, weight=1, trust=Trust.RIGHT)
def more_checkpoints_of_repeated_rows(world: World, rng: random.Random) -> str | None:
    """The same beside what is there, so that one after the other is tried."""
    names = sorted(name for name in world.blobs if name.startswith("parquet-"))
    if not names:
        return None
    name = rng.choice(names)
    world.trust = Trust.OPEN
    for number in range(rng.choice((1, 4))):
        uuid = f"{number:08x}-1234-1234-1234-123456789abc"
        world.put(f"_delta_log/{6:020}.checkpoint.{uuid}.parquet", world.blobs[name])
    return name


@mutation(1, weight=1.5, trust=Trust.RIGHT)
def a_long_path(world: World, rng: random.Random) -> str:
    """A path of many segments, or of one that never ends."""
    count = rng.choice((1_000, 40_000, 200_000))
    part = rng.choice(("a/", "a/", "../", "./", "/", "%2e%2e/", "%41", "é", "a%2Fb/", "x"))
    path = part * count + "x.parquet"
    kind = rng.choice(("add", "remove", "remove", "cdc"))
    for _ in range(rng.choice((1, 1, 3))):
        rng.choice(world.history).append(_path_action(kind, path))
    world.inventory.append(path)
    return f"{kind} {part} {count} times"


@mutation(1, weight=1.5, trust=Trust.OPEN)
def a_vector_of_many_rows(world: World, rng: random.Random) -> str:
    """A vector of a few bytes that stands for millions of rows."""
    names = sorted(name for name in world.blobs if name.startswith("vector-"))
    name = rng.choice(names)
    content = world.blobs[name]
    path = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    world.put(path, content)
    vector = {"storageType": "u", "pathOrInlineDv": VECTOR_NAME, "offset": 1}
    vector |= {"sizeInBytes": len(content) - 9, "cardinality": int(name.rpartition("-")[2])}
    action = _path_action("add", "part=x/f.parquet")
    stats = rng.choice(('{"numRecords":40}', "{}", '{"numRecords":9223372036854775807}', None))
    action["add"] |= {"deletionVector": vector, "stats": stats}
    world.history[-1].append(action)
    return f"{name} {stats}"


@mutation(1, weight=1, trust=Trust.RIGHT)
def many_actions(world: World, rng: random.Random) -> str:
    """A hundred thousand actions in one commit: of one file, of many, of applications, of domains."""
    count = rng.choice((1_000, 100_000))
    kind = rng.choice(
        ("one add", "adds", "removes", "one remove", "txns", "domains", "cdc", "infos")
    )
    commit = world.history[-1]
    numbers = range(count)
    if kind == "txns":
        commit += [{"txn": {"appId": f"app{n % 50_000}", "version": n}} for n in numbers]
        world.trust = Trust.OPEN
    elif kind == "domains":
        commit += [
            {"domainMetadata": {"domain": f"d{n}", "configuration": "{}", "removed": False}}
            for n in numbers
        ]
    elif kind == "infos":
        commit += [{"commitInfo": {"timestamp": OLD_MS, "operation": "x"}}] * count
    else:
        one = kind.startswith("one")
        action = {"adds": "add", "removes": "remove"}.get(kind, kind.rpartition(" ")[2])
        first = _path_action(action, "part=x/many.parquet")
        value = first[action]
        commit += (
            [first] * count
            if one
            else [{action: {**value, "path": f"part=x/many{n}.parquet"}} for n in numbers]
        )
        if one:
            world.trust = Trust.OPEN
    return f"{count} {kind}"


@mutation(1, weight=1)
def a_wide_table(world: World, rng: random.Random) -> str:
    """Columns, partition columns, properties, features or tags by the ten thousand."""
    kind = rng.choice(("columns", "partitions", "properties", "tags", "values", "features"))
    count = rng.choice((2_000, 20_000))
    metadata = _metadata(world)
    if kind in ("columns", "partitions"):
        schema = json.loads(metadata["schemaString"])
        for n in range(count):
            about = {"delta.columnMapping.id": n + 10, "delta.columnMapping.physicalName": f"w{n}"}
            field = {"name": f"w{n}", "type": "long", "nullable": True, "metadata": about}
            schema["fields"].append(field)
        metadata["schemaString"] = json.dumps(schema)
        if kind == "partitions":
            metadata["partitionColumns"] = [f"w{n}" for n in range(count)]
    elif kind == "properties":
        metadata["configuration"] |= {f"p{n}": "x" for n in range(count)}
    elif kind == "features":
        protocol = next(a["protocol"] for c in world.history for a in c if "protocol" in a)
        protocol["writerFeatures"] = [f"f{n}" for n in range(count)]
    else:
        action = _path_action("add", "part=x/f.parquet")
        field_name = "tags" if kind == "tags" else "partitionValues"
        action["add"][field_name] = {f"k{n}": "x" for n in range(count)}
        world.history[-1].append(action)
    return f"{count} {kind}"


@mutation(2, weight=1, trust=Trust.OPEN)
def a_large_file(world: World, rng: random.Random) -> str | None:
    """A file of the log with twenty million bytes of one kind in front, behind or instead."""
    paths = world.log_files(".json", ".crc", "_last_checkpoint")
    if not paths:
        return None
    path = rng.choice(paths)
    filler = rng.choice(
        (b" ", b"\n", b"{}\n", b"\0", b'{"x":1}\n', b"[", b'"', b"\xff", b'{"add":', b"1")
    )
    more = filler * (20_000_000 // len(filler))
    content = world.content(path)
    world.put(path, rng.choice((content + more, more + content, more)))
    return f"{path} {filler!r}"


@mutation(1, weight=1)
def a_large_text(world: World, rng: random.Random) -> str:
    """A text of ten million characters, of up to six bytes each in JSON, where one is expected."""
    character = rng.choice(("x", "\\", '"', "é", "\x1b", "("))
    text = character * 10_000_000
    kind = rng.randrange(5)
    metadata = _metadata(world)
    if kind == 0:
        metadata["description"] = text
    elif kind == 1:
        metadata["configuration"]["delta.constraints.c"] = text
    elif kind == 2:
        world.history[-1][0]["commitInfo"]["operationParameters"] = {"predicate": text}
    elif kind == 3:
        world.history[-1].append(
            {"domainMetadata": {"domain": "d", "configuration": text, "removed": False}}
        )
    else:
        action = _path_action("add", "part=x/f.parquet")
        action["add"]["stats"] = '{"numRecords":1,"minValues":{"c-id":"' + text + '"}}'
        world.history[-1].append(action)
    return f"kind {kind} {text[:1]!r}"


_EXPRESSIONS = ('"' + '\\"' * 100_000, "'" + "''" * 100_000, "(" * 50_000, "NOT " * 50_000,
                "id + " * 50_000,
                "`" + "``" * 100_000, "/*" * 50_000, "--" * 50_000, "CASE WHEN " * 20_000, "id " * 100_000,
                "-" * 100_000, "1" * 100_000, "'\\" * 50_000)  # fmt: skip


@mutation(1, weight=1.5)
def an_expression(world: World, rng: random.Random) -> str:
    """A constraint, invariant or generated column that takes long to parse."""
    text = rng.choice(_EXPRESSIONS)
    metadata = _metadata(world)
    kind = rng.randrange(4)
    if kind == 0:
        metadata["configuration"]["delta.constraints.c"] = text
    else:
        schema = json.loads(metadata["schemaString"])
        key = ("delta.generationExpression", "delta.invariants", "CURRENT_DEFAULT")[kind - 1]
        value = json.dumps({"expression": {"expression": text}}) if kind == 2 else text
        schema["fields"][0]["metadata"][key] = value
        metadata["schemaString"] = json.dumps(schema)
    protocol = next(a["protocol"] for c in world.history for a in c if "protocol" in a)
    features = ["checkConstraints", "generatedColumns", "invariants", "allowColumnDefaults"]
    if "writerFeatures" in protocol:
        protocol["writerFeatures"] = [*dict.fromkeys([*protocol["writerFeatures"], *features])]
    return f"kind {kind} {text[:12]!r}"
