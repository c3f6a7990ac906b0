"""Damage: truncated files, random bytes, files in the place of others."""

from __future__ import annotations

import random

from tests.attacks.fuzz.files import File
from tests.attacks.fuzz.world import Trust, World, mutation

_HINTS = ("_last_checkpoint", ".crc", "_last_vacuum_info")


def _any_file(world: World, rng: random.Random) -> str | None:
    """Mostly a file of the log."""
    log, all_ = world.log_files(), world.files()
    if not all_:
        return None
    return rng.choice(log) if log and rng.random() < 0.85 else rng.choice(all_)


def _known(world: World, path: str) -> None:
    """Data files say nothing about the log, and hints may be damaged."""
    if path.startswith("_delta_log/") and not path.endswith(_HINTS):
        world.trust = Trust.OPEN


@mutation(2, weight=4, trust=Trust.EXACT)
def truncated(world: World, rng: random.Random) -> str | None:
    """A file that ends early, at any place or at the end of a line."""
    path = _any_file(world, rng)
    if path is None:
        return None
    _known(world, path)
    content = world.content(path)
    end = rng.choice(
        (0, rng.randrange(len(content) + 1), content.rfind(b"\n", 0, len(content) - 1) + 1)
    )
    world.put(path, content[:end])
    return f"{path} to {end} of {len(content)}"


@mutation(2, weight=8, trust=Trust.EXACT)
def some_bytes(world: World, rng: random.Random) -> str | None:
    """A few other bytes, in Parquet often those of the footer."""
    path = _any_file(world, rng)
    content = bytearray(world.content(path)) if path else bytearray()
    if not path or not content:
        return None
    _known(world, path)
    footer = path.endswith(".parquet") and rng.random() < 0.6
    first = max(0, len(content) - 2000) if footer else 0
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(first, len(content))
        content[at] = rng.choice(
            (0, 255, content[at] ^ (1 << rng.randrange(8)), rng.randrange(256))
        )
    world.put(path, bytes(content))
    return f"{path}"


@mutation(2, weight=2, trust=Trust.EXACT)
def a_footer_length(world: World, rng: random.Random) -> str | None:
    """A Parquet file that lies about the length of its footer."""
    paths = world.files(ends=(".parquet",))
    if not paths:
        return None
    path = rng.choice(paths)
    _known(world, path)
    length = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, rng.randrange(2**16)))
    world.put(path, world.content(path)[:-8] + length.to_bytes(4, "little") + b"PAR1")
    return f"{path} {length}"


@mutation(2, weight=2, trust=Trust.RIGHT)
def a_ratified_commit(world: World, rng: random.Random) -> str | None:
    """A ratified commit that isn't as its owner has it: shorter, longer, or another one."""
    paths = world.files("_delta_log/_commits/")
    if not world.owner_entries or not paths:
        return None
    path = rng.choice(paths)
    content = world.content(path)
    lines = content.splitlines(keepends=True)
    changed = rng.choice(
        (b"".join(lines[:-1]), b"".join(lines[1:]), content + lines[-1], b"", content[:-5], lines[0],
         content.replace(b"unknown", b"another"), content + b'{"add":{"path":"new"}}\n')
    )  # fmt: skip
    world.put(path, changed)
    return f"{path} of {len(content)} bytes has {len(changed)}"


@mutation(2, weight=2)
def one_for_another(world: World, rng: random.Random) -> str | None:
    """A file with the content of another one."""
    first, second = _any_file(world, rng), _any_file(world, rng)
    if first is None or second is None:
        return None
    world.put(second, world.content(first))
    return f"{first} as {second}"


@mutation(2, weight=2)
def a_missing_file(world: World, rng: random.Random) -> str | None:
    """A file that is gone."""
    path = _any_file(world, rng)
    if path is None:
        return None
    del world.tree[path]
    return path


@mutation(2, weight=1)
def a_time(world: World, rng: random.Random) -> str | None:
    """A file from long ago, or from a time to come."""
    path = _any_file(world, rng)
    node = path and world.tree[path]
    if not path or not isinstance(node, File):
        return None
    times = (0, -1, -(2**40), 2**42, 2**52, 10**15, 1)
    modified = rng.choice(times)
    world.tree[path] = File(node.content, modified, node.sparse_size, node.mode)
    return f"{path} {modified}"


@mutation(2, weight=1, trust=Trust.RIGHT)
def a_vector_file(world: World, rng: random.Random) -> str | None:
    """A damaged file of deletion vectors."""
    paths = world.files(ends=(".bin",))
    if not paths:
        return None
    path = rng.choice(paths)
    kind = rng.choice(("empty", "frame", "containers", "runs", "huge", *sorted(_vectors(world))))
    content = {"empty": b"", "frame": b"\x01\xff\xff\xff\xff", "containers": _framed(8, 0),
               "runs": _framed(1, 1), "huge": _framed(2**32 - 1, 0)}.get(kind)  # fmt: skip
    world.put(path, world.blobs[kind] if content is None else content)
    return f"{path} {kind}"


def _vectors(world: World) -> list[str]:
    return [name for name in world.blobs if name.startswith("vector-")]


def _framed(bitmaps: int, filler: int) -> bytes:
    """A vector whose roaring data promise more than they have."""
    import struct
    import zlib

    data = struct.pack("<IQ", 1681511377, bitmaps) + bytes([filler]) * 40
    return b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
