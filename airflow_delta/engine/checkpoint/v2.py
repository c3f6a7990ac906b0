"""Read what only V2 checkpoints have: a top level of JSON lines, and sidecars.

A V2 checkpoint has its version in ``checkpointMetadata``, and all non-file actions. It either has
adds and removes as well, or refers to the sidecars that have them (PROTOCOL.md, "V2 Spec", "Sidecar
Files").

The non-file actions of a top level are read without pyarrow, which is imported only if the lines
contain files; `read` says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.arrow.json.exact import NO_ACTION
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import SIDECAR_DIRECTORY, V2Checkpoint, sidecar_path
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.model.checkpoint_kinds import CHECKPOINT_KINDS
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.line_locations import larger_than_memory
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.storage.base import FileInfo, Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.arrow.action_schema import FileActions

__all__ = ["JsonTopLevel", "sidecar_file"]

_FILE_KINDS = ("add", "remove")
# With the brace, because if the value is null, another action may follow.
_FILE_ACTIONS = tuple(f'{{"{kind}":{{'.encode() for kind in _FILE_KINDS)


class JsonTopLevel:
    """The actions in a ``<version>.checkpoint.<uuid>.json``, read in one request.

    Args:
        storage: the table's storage.
        checkpoint: the file.
    """

    def __init__(self, storage: Storage, checkpoint: V2Checkpoint) -> None:
        self._storage = storage
        self._checkpoint = checkpoint

    def non_file_actions(self) -> list[tuple[str, dict[str, Any]]]:
        """The non-file actions, as (kind, JSON object).

        Raises:
            CorruptLogError: a line isn't a JSON object.
            ObjectNotFoundError: there is no such file.
            StorageError: it doesn't fit into memory.
        """
        return self._lines[0]

    def files(self, kind: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The adds or the removes in the file itself, for a checkpoint without sidecars.

        Raises:
            CorruptLogError: a line isn't an action of that kind.
            StorageError: they don't fit into memory.
        """
        lines = self._lines[1]
        if not lines:
            return
        from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
        from airflow_delta.engine.arrow.json.reader import parse_commits

        try:
            actions = parse_commits(
                [(self._checkpoint.version, b"\n".join(lines))],
                columns=columns,
                table=self._storage.root,
                paths={self._checkpoint.version: self._checkpoint.path},
            ).files
        except CorruptLogError as error:
            # It is parsed like a commit, but it is a checkpoint: so the error needs another
            # message.
            raise self._corrupt(f"one of its file actions is wrong: {error.message}") from error
        self._check_each_file_once(actions)
        table = actions.adds if kind == "add" else actions.removes
        schema = (add_schema if kind == "add" else remove_schema)(
            None if columns is None else tuple(columns)
        )
        if table.num_rows:
            yield table.select(schema.names)

    def _check_each_file_once(self, actions: FileActions) -> None:
        import pyarrow as pa

        from airflow_delta.engine.replay.file_key import file_keys

        root = self._storage.root
        # A duplicate tombstone changes no result.
        tombstones = file_keys(actions.removes, table=root).unique()
        keys = pa.chunked_array([*file_keys(actions.adds, table=root).chunks, tombstones])
        if len(keys.unique()) < len(keys):
            raise self._corrupt("it names a file twice")

    @lazy_property
    def _lines(self) -> tuple[list[tuple[str, dict[str, Any]]], list[bytes]]:
        """The non-file actions, and the unparsed lines of file actions."""
        content = self._storage.read(self._checkpoint.path)
        try:
            return self._split(content)
        except MemoryError as error:
            raise larger_than_memory(
                len(content),
                version=self._checkpoint.version,
                path=self._checkpoint.path,
                table=self._storage.root,
                what="checkpoint",
            ) from error

    def _split(self, content: bytes) -> tuple[list[tuple[str, dict[str, Any]]], list[bytes]]:
        non_file: list[tuple[str, dict[str, Any]]] = []
        files: list[bytes] = []
        # A loop over lines, but it parses only those of non-file actions.
        for number, line in enumerate(content.split(b"\n"), start=1):
            if line.startswith(_FILE_ACTIONS):
                files.append(line)
            elif not NO_ACTION.fullmatch(line) and line.strip():
                action = self._parsed(line, number)
                if any(kind in action for kind in _FILE_KINDS):
                    files.append(line)
                non_file.extend(self._non_file_actions_of(action, number))
        return non_file, files

    def _non_file_actions_of(
        self, action: dict[str, Any], number: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for kind in CHECKPOINT_KINDS:
            value = action.get(kind)
            if isinstance(value, dict):
                yield kind, value
            elif value is not None:
                found = type(value).__name__
                raise self._corrupt(f"line {number}: {kind} is no JSON object, but a {found}")

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            action = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"line {number} isn't readable as JSON ({error})") from error
        if not isinstance(action, dict):
            kind = type(action).__name__
            raise self._corrupt(f"line {number} is no JSON object, but a {kind}")
        return action

    def _corrupt(self, finding: str) -> CorruptLogError:
        return CorruptLogError(
            f"{self._checkpoint.path} is damaged: {finding}",
            table=self._storage.root,
            path=self._checkpoint.path,
            version=self._checkpoint.version,
        )


def sidecar_file(sidecar: Sidecar, *, table: str, checkpoint: str) -> FileInfo:
    """The file of a sidecar.

    Its path is URI-encoded, and normally a bare file name. Longer forms are accepted if they end in
    the directory of sidecars.

    Args:
        sidecar: the action.
        table: the table's location, for errors.
        checkpoint: the path of the checkpoint, for errors.

    Raises:
        CorruptLogError: the path leads elsewhere.
    """
    directory, _, name = decode_path(sidecar.path).rpartition("/")
    if not name or (directory and not f"/{directory}".endswith(f"/{SIDECAR_DIRECTORY}")):
        raise CorruptLogError(
            f"{checkpoint} names the sidecar {sidecar.path!r}: expected a file in "
            f"{SIDECAR_DIRECTORY}",
            table=table,
            path=checkpoint,
        )
    return FileInfo(sidecar_path(name), sidecar.size_in_bytes, sidecar.modification_time)
