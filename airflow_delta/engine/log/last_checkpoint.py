"""``_last_checkpoint``: a hint that saves readers listing the start of the log.

The file names the version of a recent checkpoint. It is overwritten without coordination, so it is
never more than a hint: a reader that finds it missing, empty, torn, stale or plainly wrong lists
the log instead. Its checksum guards against a read that mixes an old and a new file.

The checksum is the MD5 digest of a canonical form: every leaf as ``path=value``, sorted, joined by
commas. The specification sorts by path; Delta Spark, the only other engine that writes checksums,
sorts the joined strings, which differs as soon as an array of scalars has eleven elements
(``"a"+10=`` sorts before ``"a"+1=``). Both orders are accepted, and Spark's is written, because
Spark checks it.

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
"""Several times what a hint has that repeats the schema of a table with ten thousand columns."""

_UNCOUNTED = -1
"""How a hint tells that its writer hasn't counted actions, as others do."""


@dataclass(frozen=True, slots=True)
class LastCheckpointHint:
    """What ``_last_checkpoint`` says. Only ``version`` is to be relied on, and that as a hint.

    Attributes:
        version: the version of the checkpoint.
        size: how many actions the checkpoint holds. Engines disagree on what they count (some
            write -1, some the number of adds): never validate with it.
        parts: how many parts a multi-part checkpoint has.
        size_in_bytes: the bytes of the checkpoint.
        num_of_add_files: how many ``add`` actions the checkpoint holds.
        checkpoint_schema: the schema of the checkpoint file, as JSON.
        v2_checkpoint: what Delta Spark embeds of a V2 checkpoint, as JSON.
        tags: further facts.
        checksum: the checksum found in the file; writing replaces it.
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

        ``version``, ``size`` and ``parts`` come first, so that even a reader that checks no
        checksum gets the three from one writer.
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
    """The hint, or None where there is none to rely on.

    A file that can't be understood, or whose checksum is wrong, is reported as a `DeltaWarning`. A
    missing or empty one is ordinary.

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
    """Point readers to a checkpoint, unless they are pointed to a newer one already.

    Nothing keeps two writers from overwriting each other, so that the older hint may be the one that
    stays. Each looks once more after his put, whether there is a newer checkpoint, and points to that;
    the last one to put does so too, and finds what is newest. Its hint tells of its version alone.

    Args:
        storage: the table's storage.
        hint: the checkpoint; its ``checksum`` is computed anew.
        log_end: finds the newest version of the table; called only where the hint on disk is newer,
            so that the answer is of that moment. A hint that points past it is wrong and gets
            replaced. Without it no newer hint is.

    Returns:
        Whether the file was written.

    Raises:
        StorageError: the store failed.
        DeltaError: what ``log_end`` raises.
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
        # Without what it repeats of the checkpoint it tells where that is, and can be read.
        content = replace(hint, checkpoint_schema=None, v2_checkpoint=None).to_json().encode()
    storage.replace(LAST_CHECKPOINT_PATH, content)
    _catch_up(storage, hint.version)
    return True


def _catch_up(storage: Storage, version: int) -> None:
    """Point readers to the newest checkpoint where they have just been pointed to an older one."""
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

    The top-level key ``checksum`` does not count.

    Raises:
        ValueError: it is not JSON, or an object has a duplicate key.
    """
    # Numbers are their own canonical form, so they must not go through int or float.
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
    """Why the file can't be relied on, as the end of a sentence."""


def _first_line(storage: Storage) -> bytes | None:
    """The line that counts, None where the file is missing or blank.

    An overwrite that was shorter than what it replaced may leave a tail behind on stores that are
    not atomic, so nothing after the first line is looked at.
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
        # By its type: nothing is quoted of a file that may be no hint.
        found = "missing" if value is None else f"of type {type(value).__name__}"
        raise _InvalidHintError(f"{name} is {found} where {kind.__name__} is expected")
    return value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every leaf with the canonical form of its path and of itself."""
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
    # quote() leaves alone exactly the unreserved characters of the specification.
    return f'"{quote(text, safe="")}"'


def _md5(entries: list[str]) -> str:
    # A check against torn reads that the protocol prescribes, not a matter of security.
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
