"""Read a checkpoint of any form: one file, many parts, or a top level with sidecars.

The name of a checkpoint doesn't decide its spec: a file with the classic name may follow the V1 or
the V2 spec (PROTOCOL.md, "Checkpoint Naming Scheme"). So the content decides: sidecars are read
wherever there are any, and a ``checkpointMetadata`` must agree with the name.

=============================  ============================  ===============================
name                           non-file actions              adds and removes
=============================  ============================  ===============================
``v.checkpoint.parquet``       in the file                   in the file, or in sidecars (V2)
``v.checkpoint.o.p.parquet``   in any part                   in all parts
``v.checkpoint.u.parquet``     in the file                   in the file, or in sidecars
``v.checkpoint.u.json``        in the lines                  in the lines, or in sidecars
=============================  ============================  ===============================

Opening a checkpoint reads nothing. Its non-file actions cost the footers and the row groups with such
actions. Adds and removes are streamed, and footers and row groups are read ahead on threads. pyarrow is
imported only where files are read; ``snapshot/snapshot.py`` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.checkpoint.v2 import JsonTopLevel, sidecar_file
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import Checkpoint, ClassicCheckpoint, V2Checkpoint
from airflow_delta.engine.model.actions import CheckpointMetadata, Sidecar
from airflow_delta.engine.model.checkpoint_kinds import (
    CHECKPOINT_KINDS,
    SINGLE_KINDS,
    find_repeated_action,
)
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.parquet import PyarrowFallback, read_non_file_rows
from airflow_delta.engine.storage.base import FileInfo, Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.arrow.parquet.action_file import ActionFile
    from airflow_delta.engine.arrow.parquet.rows import RowFilter

__all__ = ["CheckpointReader", "open_checkpoint", "was_replaced"]

# Parts that are read at once for their non-file actions. From a remote store this saves waiting; on
# a disk it doesn't help.
_REMOTE_PARTS = 8


def open_checkpoint(
    storage: Storage,
    checkpoint: Checkpoint,
    *,
    table: str,
    actions: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
) -> CheckpointReader:
    """A reader of a checkpoint; nothing is read yet.

    Args:
        storage: the table's storage.
        checkpoint: the checkpoint, from the listing of the log.
        table: the table's location, for errors.
        actions: the actions of a top level with sidecars, if they are known without reading it; see
            ``log/embedded.py``.
    """
    return CheckpointReader(storage, checkpoint, table=table, actions=actions)


class CheckpointReader:
    """The actions of one checkpoint. See the module.

    All methods raise `CorruptLogError`, which names the file, if a file of the checkpoint is
    damaged or a sidecar is missing, and `ObjectNotFoundError` if the checkpoint itself is gone.
    """

    def __init__(
        self,
        storage: Storage,
        checkpoint: Checkpoint,
        *,
        table: str,
        actions: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
    ) -> None:
        self._storage = storage
        self._checkpoint = checkpoint
        self._table = table
        self._json: JsonTopLevel | None = None
        self._parquet: tuple[FileInfo, ...] = ()
        self._known = None if actions is None else [(kind, dict(value)) for kind, value in actions]
        if self._known is not None:
            return  # All file actions are in sidecars, so the top level has no more.
        if isinstance(checkpoint, V2Checkpoint) and checkpoint.format == "json":
            self._json = JsonTopLevel(storage, checkpoint)
        else:
            self._parquet = checkpoint.files

    @property
    def version(self) -> int:
        """The version of the table that the checkpoint holds."""
        return self._checkpoint.version

    @property
    def path(self) -> str:
        """The path of the checkpoint, or of its first part."""
        return self._checkpoint.path

    def non_file_actions(self) -> list[tuple[str, dict[str, Any]]]:
        """The non-file actions, as (kind, JSON object).

        They include the ``checkpointMetadata`` and the ``sidecar`` actions of a V2 checkpoint.
        """
        return self._non_file_actions

    @property
    def metadata(self) -> CheckpointMetadata | None:
        """The ``checkpointMetadata`` of a V2 checkpoint; None for the V1 spec."""
        return self._metadata_of(self._non_file_actions)

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        """The sidecars with the file actions; none if the checkpoint itself has these."""
        found = tuple(
            Sidecar.from_json(action, f"{self.path}: sidecar")
            for kind, action in self._non_file_actions
            if kind == "sidecar"
        )
        # A path can have several spellings.
        if len({self._file_of(sidecar).path for sidecar in found}) < len(found):
            raise self._corrupt("it names a sidecar twice")
        return found

    @property
    def has_files_inline(self) -> bool:
        """Whether file actions are in the checkpoint's own files, and not in sidecars.

        A V2 checkpoint must not have both (PROTOCOL.md, "V2 Spec"). If it has, this is True.
        """
        kinds = ("add", "remove")
        if self._json is not None:
            return any(rows.num_rows for kind in kinds for rows in self._json.files(kind))
        return any(file.pieces(kind, ("path",)) for file in self._action_files for kind in kinds)

    def adds(
        self, columns: Sequence[str] | None = None, *, row_filter: RowFilter | None = None
    ) -> Iterator[pa.Table]:
        """The live files, in tables with (at least) the requested columns and those of the file's key.

        Args:
            columns: the requested columns, None for all.
            row_filter: leaves out files; it adds the columns that it needs itself.
        """
        return self._file_actions("add", columns, row_filter)

    def removes(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The tombstones, likewise."""
        return self._file_actions("remove", columns)

    @lazy_property
    def _non_file_actions(self) -> list[tuple[str, dict[str, Any]]]:
        if self._known is not None:
            actions = self._known
        elif self._json is not None:
            actions = self._json.non_file_actions()
        else:
            workers = _REMOTE_PARTS if self._storage.capabilities.remote else 1
            parts = map_ordered(self._non_file_actions_of, self._parquet, workers=workers)
            actions = [action for part in parts for action in part]
        # Each part may be valid by itself, but not all parts together.
        twice = find_repeated_action(actions)
        if twice is not None:
            raise self._corrupt(twice)
        self._check_version(self._metadata_of(actions))
        return actions

    def _non_file_actions_of(self, file: FileInfo) -> list[tuple[str, dict[str, Any]]]:
        try:
            with self._storage.open(file.path, size=file.size) as source:
                return read_non_file_rows(
                    source, size=file.size, kinds=CHECKPOINT_KINDS, single=SINGLE_KINDS
                )
        except PyarrowFallback:
            # A rare encoding, or damage: pyarrow reads the former, and its message explains the
            # latter.
            from airflow_delta.engine.arrow.parquet.action_file import ActionFile

            actions = ActionFile(self._storage, file)
            actions.check_each_once()
            return actions.non_file_actions()

    @lazy_property
    def _action_files(self) -> tuple[ActionFile, ...]:
        from airflow_delta.engine.arrow.parquet.action_file import ActionFile

        return tuple(ActionFile(self._storage, file) for file in self._parquet)

    @lazy_property
    def _sidecar_files(self) -> tuple[ActionFile, ...]:
        from airflow_delta.engine.arrow.parquet.action_file import ActionFile

        files = map(self._file_of, self.sidecars)
        return tuple(ActionFile(self._storage, file, exact_size=True) for file in files)

    def _file_of(self, sidecar: Sidecar) -> FileInfo:
        return sidecar_file(sidecar, table=self._table, checkpoint=self.path)

    def _file_actions(
        self, kind: str, columns: Sequence[str] | None, row_filter: RowFilter | None = None
    ) -> Iterator[pa.Table]:
        from airflow_delta.engine.arrow.parquet.action_file import (
            ActionFile,
            read_pieces,
            reader_threads,
        )

        sidecars, threads = self._sidecar_files, reader_threads(self._storage)
        if self._json is not None:
            yield from _filtered(self._json, kind, columns, row_filter)
        files = map_ordered(
            ActionFile.load_footer, (*self._action_files, *sidecars), workers=threads
        )
        pieces = (
            piece for file in files for piece in file.pieces(kind, columns, row_filter=row_filter)
        )
        try:
            yield from read_pieces(pieces, workers=threads)
        except ObjectNotFoundError as error:
            missing = next(
                (file for file in sidecars if file.path == error.facts.get("path")), None
            )
            if missing is None:
                raise
            raise self._corrupt(f"its sidecar {missing.path} is missing") from error
        self._check_unreplaced()

    def _check_unreplaced(self) -> None:
        """Check that no other writer has replaced the checkpoint while it was read.

        Engines may do so under a classic name. Then row groups of two files could be mixed
        unnoticed.
        """
        if isinstance(self._checkpoint, ClassicCheckpoint) and was_replaced(
            self._storage, self._checkpoint
        ):
            raise ObjectNotFoundError(
                f"{self.path} has been replaced while it was read",
                table=self._table,
                path=self.path,
            )

    def _metadata_of(self, actions: list[tuple[str, dict[str, Any]]]) -> CheckpointMetadata | None:
        found = [action for kind, action in actions if kind == "checkpointMetadata"]
        where = f"{self.path}: checkpointMetadata"
        return CheckpointMetadata.from_json(found[0], where) if found else None

    def _check_version(self, metadata: CheckpointMetadata | None) -> None:
        """Check that content and name of a V2 checkpoint agree; the name alone proves nothing."""
        if metadata is None:
            if isinstance(self._checkpoint, V2Checkpoint):
                raise self._corrupt("it has no checkpointMetadata action, expected one")
        elif metadata.version != self.version:
            raise self._corrupt(
                f"its checkpointMetadata is of version {metadata.version}, expected {self.version}"
            )

    def _corrupt(self, finding: str) -> CorruptLogError:
        return CorruptLogError(
            f"{self.path} is damaged: {finding}. An earlier checkpoint, or the commits if "
            "they still exist, may have the same content",
            table=self._table,
            path=self.path,
            version=self.version,
        )


def was_replaced(storage: Storage, checkpoint: ClassicCheckpoint) -> bool:
    """Whether a checkpoint has been replaced since it was listed.

    Args:
        storage: the table's storage.
        checkpoint: the checkpoint, from the listing of the log.

    Raises:
        ObjectNotFoundError: it is gone.
    """
    now = storage.head(checkpoint.path)
    # Some stores give whole seconds where their listings give milliseconds.
    return (now.size, now.modified_ms // 1000) != (checkpoint.size, checkpoint.modified_ms // 1000)


def _filtered(
    top: JsonTopLevel, kind: str, columns: Sequence[str] | None, row_filter: RowFilter | None
) -> Iterator[pa.Table]:
    """The file actions of a top level in JSON lines, which hold statistics as texts."""
    if row_filter is None:
        return top.files(kind, columns)
    wanted = None if columns is None else (*columns, *row_filter.columns)
    return map(row_filter.prune, top.files(kind, wanted))
