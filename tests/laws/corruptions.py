"""Damage done to logs, and the states that a reader of a damaged log may give.

A log has few means to tell that it was damaged: JSON has none but its grammar, and Parquet has the
checksums of its pages, but none of its footer. What a reader may answer is told by `possible`: any
state that *some* intact route through the files gives, where a route is a base (nothing, a
checkpoint, a compaction) and the commits after it, read as they are now. A commit whose text was
changed into other valid JSON is a valid commit. A checkpoint in Parquet says what was written, or
nothing; where no route is left there is only an error.

What nothing in the log can tell is left out, by `untold`: a Parquet footer with other bytes (the
name of a column is enough), and a part of a multi-part checkpoint in the place of another.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.table_builder import Action, Files, State, commit_file, replay

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_COMPACTION = re.compile(r"_delta_log/0{20}\.(\d{20})\.compacted\.json")
_PART = re.compile(r"_delta_log/(\d{20})\.checkpoint\.\d{10}\.(\d{10})\.parquet")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.[0-9a-f-]{36})?\.(?:parquet|json)")

# What becomes of reading lines that are no longer JSON, or not the actions that they were.
_NO_LOG = (KeyError, ValueError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Log:
    """A valid log and what it says.

    Attributes:
        name: its form.
        files: its files.
        states: the state of each version.
    """

    name: str
    files: Files
    states: list[State]


def damage(files: Files, rng: random.Random) -> tuple[Files, str]:
    """One or two corruptions; the damaged files, and words for what was done."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.choice(KINDS)
        files, what = kind(dict(files), rng)
        done.append(f"{kind.__name__} {what}")
    return files, "; ".join(done)


def _path(files: Files, rng: random.Random) -> str:
    return rng.choice(sorted(files))


def _two(files: Files, rng: random.Random) -> tuple[str, str]:
    """Two files, mostly of one kind."""
    first = _path(files, rng)
    alike = [path for path in sorted(files) if path.split(".")[1:] == first.split(".")[1:]]
    return first, rng.choice(alike if len(alike) > 1 and rng.random() < 0.8 else sorted(files))


def _place(content: bytes | bytearray, rng: random.Random) -> int:
    return rng.randrange(len(content)) if content else 0


def truncate(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    end = _place(files[path], rng)
    return {**files, path: files[path][:end]}, f"{path} to {end}"


def truncate_after_a_line(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    cut = files[path].splitlines(keepends=True)
    keep = rng.randrange(len(cut)) if cut else 0
    return {**files, path: b"".join(cut[:keep])}, f"{path} to {keep} lines"


def empty(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    return {**files, path: b""}, path


def flip_a_bit(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = bytearray(files[path])
    place, bit = _place(content, rng), rng.randrange(8)
    if content:
        content[place] ^= 1 << bit
    return {**files, path: bytes(content)}, f"{path} bit {bit} of {place}"


def change_a_byte(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = bytearray(files[path])
    place = _place(content, rng)
    if content:
        content[place] = rng.choice(b'{}[]",:\\ \n\r\t\0019-.eEtfn\xff\xc3')
    return {**files, path: bytes(content)}, f"{path} byte {place}"


def delete_bytes(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = files[path]
    place, length = _place(content, rng), rng.choice((1, 1, 2, 8, 64))
    return {**files, path: content[:place] + content[place + length :]}, f"{path} {place}+{length}"


def insert_bytes(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = files[path]
    place = _place(content, rng)
    new = rng.choice(
        (b"\0", b"\n", b'"', b"{", b"}", b"\xef\xbb\xbf", b"\r\n", b"0", b",", b"PAR1")
    )
    return {**files, path: content[:place] + new + content[place:]}, f"{path} {new!r} at {place}"


def exchange_blocks(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = files[path]
    a, b, c = sorted(_place(content, rng) for _ in range(3))
    return {**files, path: content[:a] + content[b:c] + content[a:b] + content[c:]}, path


def repeat_a_block(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    content = files[path]
    a, b = sorted(_place(content, rng) for _ in range(2))
    return {**files, path: content[:b] + content[a:b] + content[b:]}, f"{path} {a}-{b}"


def shuffle_lines(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    cut = files[path].splitlines(keepends=True)
    rng.shuffle(cut)
    return {**files, path: b"".join(cut)}, path


def repeat_a_line(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    cut = files[path].splitlines(keepends=True) or [b""]
    cut.insert(rng.randrange(len(cut) + 1), rng.choice(cut))
    return {**files, path: b"".join(cut)}, path


def nest_deeply(files: Files, rng: random.Random) -> tuple[Files, str]:
    """An entry more in an object of JSON, of brackets in brackets, often more than can be read."""
    path = rng.choice([path for path in sorted(files) if not path.endswith(".parquet")])
    content = files[path]
    depth = rng.choice((400, 100_000))
    entry = b'"deep":' + b"[" * depth + b"]" * depth + b","
    objects = [match.end() for match in re.finditer(rb'\{(?=")', content)]
    place = rng.choice(objects or [0])
    return {**files, path: content[:place] + entry + content[place:]}, f"{path} {depth} at {place}"


def delete_a_file(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    del files[path]
    return files, path


def copy_over_another(files: Files, rng: random.Random) -> tuple[Files, str]:
    first, second = _two(files, rng)
    return {**files, second: files[first]}, f"{first} to {second}"


def swap_two_files(files: Files, rng: random.Random) -> tuple[Files, str]:
    first, second = _two(files, rng)
    return {**files, first: files[second], second: files[first]}, f"{first} and {second}"


def rename_to_another_version(files: Files, rng: random.Random) -> tuple[Files, str]:
    path = _path(files, rng)
    new = re.sub(r"\d{20}", f"{rng.choice((0, 2, 5, 8, 9, 12)):020}", path, count=1)
    files[new] = files.pop(path)
    return files, f"{path} to {new}"


KINDS: tuple[Callable[[Files, random.Random], tuple[Files, str]], ...] = (
    truncate,
    truncate_after_a_line,
    empty,
    flip_a_bit,
    flip_a_bit,
    flip_a_bit,
    change_a_byte,
    change_a_byte,
    delete_bytes,
    insert_bytes,
    exchange_blocks,
    repeat_a_block,
    shuffle_lines,
    repeat_a_line,
    nest_deeply,
    delete_a_file,
    copy_over_another,
    swap_two_files,
    rename_to_another_version,
)
"""The corruptions; those of single bits and bytes come more often."""


def latest(files: Files) -> int | None:
    """The newest version that a name in the log proves."""
    versions = [int(match[1]) for path in files if (match := _COMMIT.fullmatch(path))]
    versions += [version for version, _ in _checkpoints(files)]
    return max(versions, default=None)


def possible(log: Log, files: Files, version: int) -> Iterator[State]:
    """The states that an intact route through damaged files gives a version."""
    for after, base in _bases(log, files, version):
        try:
            route = [
                _actions(files[commit_file(number)]) for number in range(after + 1, version + 1)
            ]
            state = replay(route, base)
        except _NO_LOG:
            continue  # a commit of the route is gone, or no longer one
        if state.protocol is not None and state.metadata is not None:
            yield state.visible()


def untold(log: Log, files: Files) -> bool:
    """Whether the damage is of a kind that nothing in the log can tell."""
    for path, content in files.items():
        original = log.files.get(path, content)
        if not path.endswith(".parquet") or content == original:
            continue
        # The last eight bytes are the length of the footer and the magic number.
        footer = len(original) - 8 - int.from_bytes(original[-8:-4], "little")
        if content[:footer] == original[:footer]:
            return True
        if _PART.fullmatch(path) and any(
            content == log.files[other] for other in log.files if _PART.fullmatch(other)
        ):
            return True
    return False


def _bases(log: Log, files: Files, version: int) -> Iterator[tuple[int, State | None]]:
    yield -1, None
    for path, content in files.items():
        if (match := _COMPACTION.fullmatch(path)) and int(match[1]) <= version:
            try:
                yield int(match[1]), replay([_actions(content)])
            except _NO_LOG:
                continue
    for number, paths in _checkpoints(files):
        if number <= version:
            for state in _checkpoint_states(log, files, number, paths):
                yield number, state


def _checkpoint_states(
    log: Log, files: Files, version: int, paths: tuple[str, ...]
) -> Iterator[State]:
    """What a checkpoint may be taken to say."""
    if all(path in log.files for path in paths):
        # Damage to bytes that nobody needs is harmless.
        yield log.states[version]
    for written, originals in _checkpoints(log.files):
        # The bytes of a V1 checkpoint don't say which version they are of, nor do those of parts.
        same = len(originals) == len(paths) and all(
            files[path] == log.files[original]
            for path, original in zip(paths, originals, strict=True)
        )
        needed = [path for original in originals for path in _sidecars(log, original)]
        whole = all(files.get(path) == log.files[path] for path in needed)
        if same and whole and (written == version or "v2" not in log.name):
            yield log.states[written]
    if paths[0].endswith(".json"):
        yield from _json_checkpoint_states(log, files, version, paths[0])


def _json_checkpoint_states(log: Log, files: Files, version: int, path: str) -> Iterator[State]:
    """The states of a damaged V2 checkpoint in JSON: its lines as they are, its sidecars intact."""
    try:
        actions = _actions(files[path])
        if [a["checkpointMetadata"]["version"] for a in actions if "checkpointMetadata" in a] != [
            version
        ]:
            return
        state = replay([actions])
        rows: list[Action] = []
        for action in actions:
            if "sidecar" in action:
                name = action["sidecar"]["path"].rpartition("/")[2]
                rows += _sidecar_rows(log, files, f"_delta_log/_sidecars/{name}")
        yield replay([rows], state)
    except _NO_LOG:
        return


def _sidecars(log: Log, path: str) -> list[str]:
    """The sidecars of a checkpoint as it was written."""
    prefix = path.split("/")[1][:20]
    own = "v2" in log.name
    return [p for p in log.files if own and p.startswith(f"_delta_log/_sidecars/{prefix}")]


def _sidecar_rows(log: Log, files: Files, path: str) -> list[Action]:
    if files[path] != log.files[path]:
        raise ValueError(f"{path} is not what was written")
    state = log.states[int(path.split("/")[2][:20])].visible()
    number, names = int(path.split(".")[2]), [p for p in log.files if "/_sidecars/" in p]
    of_version = [p for p in names if p.split("/")[2][:20] == path.split("/")[2][:20]]
    rows = [{"add": row} for row in state.files.values()]
    rows += [{"remove": row} for row in state.tombstones.values()]
    return rows[number :: len(of_version)]


def _checkpoints(files: Files) -> list[tuple[int, tuple[str, ...]]]:
    """The checkpoints that aren't empty and lack no part, by name: version and files."""
    found = [
        (int(match[1]), (path,))
        for path, content in files.items()
        if content and (match := _CHECKPOINT.fullmatch(path))
    ]
    parts: dict[tuple[int, int], list[str]] = {}
    for path, content in files.items():
        if content and (match := _PART.fullmatch(path)):
            parts.setdefault((int(match[1]), int(match[2])), []).append(path)
    return found + [
        (version, tuple(sorted(paths)))
        for (version, count), paths in parts.items()
        if len(paths) == count
    ]


def _actions(content: bytes) -> list[Any]:
    """The lines of a commit as they are now.

    Raises:
        ValueError: it is empty or no JSON.
        TypeError: a line is no object.
        RecursionError: a line is nested too deeply.
    """
    if not content:
        raise ValueError("a commit must not be empty")
    # Not splitlines: it cuts at separators that JSON allows in strings.
    actions = [
        json.loads(line, parse_constant=_refuse)
        for line in content.decode().split("\n")
        if line.strip(" \t\r")
    ]
    if not all(isinstance(action, dict) for action in actions):
        raise TypeError("a line must be an object")
    return actions


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
