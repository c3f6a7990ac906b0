"""``_last_checkpoint``: a hint that saves readers from listing the start of the log.

The file contains the version of a recent checkpoint. It is overwritten without coordination, so it is only
a hint: if it is missing, empty, torn, stale or wrong, readers list the log instead. Its checksum
(`json_checksums`) detects a read that mixes an old and a new file.

Spec: PROTOCOL.md, "Last Checkpoint File", "Last Checkpoint File Schema", "JSON checksum".
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.log.files import (
    LAST_CHECKPOINT_PATH,
    MAX_VERSION,
    MultipartCheckpoint,
)
from airflow_delta.engine.log.hint_file import UnusableHintError, read_hint
from airflow_delta.engine.log.listing import list_log

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "LastCheckpointHint",
    "json_checksums",
    "read_last_checkpoint",
    "write_last_checkpoint",
]

_MOST_BYTES = 4 << 20
"""Several times the size of a hint that repeats the schema of a table with ten thousand columns."""

_UNCOUNTED = -1
"""``size`` if the writer hasn't counted the actions; other engines write the same."""


@dataclass(frozen=True, slots=True)
class LastCheckpointHint:
    """The content of ``_last_checkpoint``. Readers rely on ``version`` alone, and only as a hint.

    Attributes:
        version: the version of the checkpoint.
        size: the number of actions in the checkpoint. Engines count differently (some write -1,
            some the number of adds), so never validate with it.
        parts: the number of parts of a multi-part checkpoint.
        size_in_bytes: the size of the checkpoint in bytes.
        num_of_add_files: the number of ``add`` actions in the checkpoint.
        checkpoint_schema: the schema of the checkpoint file, as JSON.
        v2_checkpoint: the actions of a V2 checkpoint that Delta Spark embeds, as JSON.
        tags: further facts.
        checksum: the checksum that was in the file; a new one is computed for writing.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    checkpoint_schema: Mapping[str, Any] | None = None
    v2_checkpoint: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None
    checksum: str | None = None

    def to_json(self) -> str:
        """The content of the file: one line, with a fresh checksum at its end.

        ``version``, ``size`` and ``parts`` come first. So even a reader that ignores the checksum
        gets these three from the same writer.
        """
        fields = {
            "version": self.version,
            "size": self.size,
            "parts": self.parts,
            "sizeInBytes": self.size_in_bytes,
            "numOfAddFiles": self.num_of_add_files,
            "checkpointSchema": self.checkpoint_schema,
            "v2Checkpoint": self.v2_checkpoint,
            "tags": self.tags,
        }
        present = {name: value for name, value in fields.items() if value is not None}
        by_entry, _ = json_checksums(_dump(present))
        return _dump({**present, "checksum": by_entry})


def read_last_checkpoint(storage: Storage) -> LastCheckpointHint | None:
    """Read the hint; None if there is no reliable one.

    A file that can't be parsed, or whose checksum is wrong, gives a `DeltaWarning`. A missing or
    empty file is normal.

    Raises:
        StorageError: the store failed.
    """
    try:
        line = _first_line(storage)
        return None if line is None else _parse(line)
    except _InvalidHintError as invalid:
        warnings.warn(
            DeltaWarning(
                f"{storage.root}: {LAST_CHECKPOINT_PATH} is ignored, because {invalid}; the log is "
                "listed from its start until a new checkpoint is written"
            ),
            stacklevel=2,
        )
        return None


def write_last_checkpoint(
    storage: Storage, hint: LastCheckpointHint, *, log_end: Callable[[], int] | None = None
) -> bool:
    """Point readers to a checkpoint, unless the hint already points to a newer one.

    Two writers can overwrite each other, and the older hint may be the one that stays. So each
    looks for a newer checkpoint after its put, and points to that; the last writer to put does so
    too, and finds the newest. That hint contains the version alone.

    Args:
        storage: the table's storage.
        hint: the checkpoint; its ``checksum`` is computed anew.
        log_end: finds the newest version of the table. It is called only if the existing hint is
            newer, so that the answer is up to date. A hint beyond that version is wrong and is
            replaced. Without this function, no newer hint is replaced.

    Returns:
        Whether the file was written.

    Raises:
        StorageError: the store failed.
        DeltaError: any error of ``log_end``.
    """
    try:
        line = _first_line(storage)
        present = None if line is None else _parse(line)
    except _InvalidHintError:
        present = None
    pointed_to = -1 if present is None else present.version
    if pointed_to > hint.version and (log_end is None or pointed_to <= log_end()):
        return False
    content = hint.to_json().encode()
    if len(content) > _MOST_BYTES:
        # Too large to be read: leave out what repeats the checkpoint. The location remains.
        content = replace(hint, checkpoint_schema=None, v2_checkpoint=None).to_json().encode()
    storage.replace(LAST_CHECKPOINT_PATH, content)
    _catch_up(storage, hint.version)
    return True


def _catch_up(storage: Storage, version: int) -> None:
    """Point readers to the newest checkpoint, if the hint just written points to an older one."""
    while checkpoints := list_log(storage, start=version + 1).checkpoints:
        newest = checkpoints[-1]
        with suppress(_InvalidHintError):
            line = _first_line(storage)
            if line is not None and _parse(line).version >= newest.version:
                return
        parts = len(newest.parts) if isinstance(newest, MultipartCheckpoint) else None
        hint = LastCheckpointHint(newest.version, _UNCOUNTED, parts)
        storage.replace(LAST_CHECKPOINT_PATH, hint.to_json().encode())
        version = newest.version


def json_checksums(text: str) -> tuple[str, str]:
    """The checksums of a JSON object: in Delta Spark's order of entries, and in the spec's.

    A checksum is the MD5 digest of a canonical form: every leaf as ``path=value``, sorted, joined by
    commas. The specification sorts by path. Delta Spark, the only other engine that writes checksums,
    sorts the joined strings. The two orders differ as soon as an array of scalars has eleven elements
    (``"a"+10=`` sorts before ``"a"+1=``). The engine accepts both, and writes Spark's, because Spark
    checks it.

    The top-level key ``checksum`` is left out.

    Raises:
        ValueError: it is not JSON, or an object has a duplicate key.
    """
    # The text of a number is its canonical form, so it must not be parsed as int or float.
    document = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_no_constant,
    )
    entries = [(path, value) for path, value in _leaves(document, "") if path != '"checksum"']
    by_entry = sorted(f"{path}={value}" for path, value in entries)
    # Percent-encoded paths are ASCII, where the order of str is the order of bytes.
    by_path = [f"{path}={value}" for path, value in sorted(entries)]
    return _md5(by_entry), _md5(by_path)


class _Number(str):
    """The text of a number in JSON."""

    __slots__ = ()


class _InvalidHintError(Exception):
    """The reason why the file is unreliable, as the end of a sentence."""


def _first_line(storage: Storage) -> bytes | None:
    """The first line; None if the file is missing or blank.

    On stores that aren't atomic, a shorter overwrite may leave the end of the longer file behind.
    So everything after the first line is ignored.
    """
    try:
        data = read_hint(storage, LAST_CHECKPOINT_PATH, most_bytes=_MOST_BYTES)
    except UnusableHintError as error:
        raise _InvalidHintError(str(error)) from error
    return data.split(b"\n", 1)[0] if data and data.strip() else None


def _parse(line: bytes) -> LastCheckpointHint:
    try:
        text = line.decode()
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _InvalidHintError(f"it is not valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise _InvalidHintError(f"it holds {type(document).__name__} where an object is expected")
    hint = LastCheckpointHint(
        version=_field(document, "version", int, required=True),
        size=_field(document, "size", int, required=True),
        parts=_field(document, "parts", int),
        size_in_bytes=_field(document, "sizeInBytes", int),
        num_of_add_files=_field(document, "numOfAddFiles", int),
        checkpoint_schema=_field(document, "checkpointSchema", dict),
        v2_checkpoint=_field(document, "v2Checkpoint", dict),
        tags=_field(document, "tags", dict),
        checksum=_field(document, "checksum", str),
    )
    if not 0 <= hint.version <= MAX_VERSION:
        raise _InvalidHintError(f"{hint.version} is no version")
    if hint.checksum is not None:
        try:
            expected = json_checksums(text)
        except (ValueError, RecursionError) as error:
            raise _InvalidHintError(f"its checksum can't be computed ({error})") from error
        if hint.checksum not in expected:
            raise _InvalidHintError(
                f"its checksum isn't that of its content, which has {expected[0]!r}"
            )
    return hint


def _field(document: Mapping[str, Any], name: str, kind: type, *, required: bool = False) -> Any:
    value = document.get(name)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, kind):
        # Only the type, without the value: the file may not be a hint at all, so don't quote it.
        found = "missing" if value is None else f"of type {type(value).__name__}"
        raise _InvalidHintError(f"{name} is {found} where {kind.__name__} is expected")
    return value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every leaf as the canonical forms of its path and of its value."""
    if isinstance(value, dict):
        children = [(_quoted(name), child) for name, child in value.items()]
    elif isinstance(value, list):
        children = [(str(index), child) for index, child in enumerate(value)]
    elif isinstance(value, _Number):
        yield path, value
        return
    elif isinstance(value, str):
        yield path, _quoted(value)
        return
    else:
        yield path, {True: "true", False: "false", None: "null"}[value]
        return
    for name, child in children:
        yield from _leaves(child, f"{path}+{name}" if path else name)


def _quoted(text: str) -> str:
    # quote() leaves exactly the unreserved characters of the specification unchanged.
    return f'"{quote(text, safe="")}"'


def _md5(entries: list[str]) -> str:
    # The protocol prescribes MD5, as a check against torn reads. It isn't a security measure.
    return hashlib.md5(",".join(entries).encode(), usedforsecurity=False).hexdigest()


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("it has a duplicate key")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no JSON")
