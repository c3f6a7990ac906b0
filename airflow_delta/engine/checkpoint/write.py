"""Write a classic checkpoint: one Parquet file of the V1 spec with the whole state of a version.

PROTOCOL.md, "Checkpoints", "V1 Spec": the ``protocol``, ``metaData``, all live ``add``, the
unexpired ``remove``, ``txn`` and ``domainMetadata`` actions, one per row, in the layout of
`action_rows`. The file is published only when everything has been written and counted. Until then,
and after any failure, there is no file.

The caller must ensure that the protocol of the version lets us write, and that the version's commit
exists (and is backfilled, if a commit owner ratifies it). It also decides which tombstones and
transactions have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.checkpoint.action_rows import FileActionTable, new_action_file
from airflow_delta.engine.checkpoint.idempotent_put import open_idempotent_writer
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.typed_columns import typed_columns
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CheckpointContent",
    "CheckpointWritten",
    "ExpectedFiles",
    "NonFileContent",
    "Written",
    "non_file_actions",
    "write_classic_checkpoint",
]


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint that has been published.

    Attributes:
        version: the version of the table.
        path: its path below the table's root.
        size_in_bytes: the size of the file, or of the top level and all sidecars.
        num_actions: the number of its actions.
        num_adds: the number of adds among them.
        adds_size_sum: the sum of the sizes of the files added, in bytes.
        hint_content: the part that ``_last_checkpoint`` is to repeat; None for nothing.
    """

    version: int
    path: str
    size_in_bytes: int
    num_actions: int
    num_adds: int
    adds_size_sum: int
    hint_content: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A published checkpoint of either spec, and what was written for it.

    Attributes:
        checkpoint: its totals.
        sidecars_written: the number of new sidecars.
        sidecars_reused: the number of sidecars of an earlier checkpoint that it also refers to.
        bytes_written: bytes of the file, or of the top level and the new sidecars.
    """

    checkpoint: CheckpointWritten
    sidecars_written: int
    sidecars_reused: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class NonFileContent:
    """The non-file state of a version.

    Attributes:
        protocol: the table's protocol.
        metadata: its metadata, whose properties decide in which form statistics are stored
            (``delta.checkpoint.writeStatsAsJson``, ``delta.checkpoint.writeStatsAsStruct``).
        transactions: the unexpired transaction identifiers.
        domains: the live domains; removed ones are left out.
    """

    protocol: Protocol
    metadata: Metadata
    transactions: Sequence[Txn]
    domains: Sequence[DomainMetadata]


@dataclass(frozen=True, slots=True)
class ExpectedFiles:
    """The expected totals of the live files of a version, from another source than their writer.

    Attributes:
        num_adds: the number of live files; None if unknown.
        adds_size: the sum of their sizes, in bytes; None if unknown.
        checksum: the path of the version checksum with these totals; None for another source.
    """

    num_adds: int | None = None
    adds_size: int | None = None
    checksum: str | None = None

    def check(self, *, num_adds: int, adds_size: int, version: int, table: str) -> None:
        """Refuse a checkpoint with other totals.

        Raises:
            InvalidTableError: the totals differ. Facts: found, expected, and path of the checksum.
        """
        teller, remedy = "the version has", "Load the version anew and try again"
        if self.checksum is not None:
            teller = f"by {self.checksum} the version has"
            remedy = (
                "If the log is right, delete that file, which is optional; if it isn't, because a file of "
                "it was lost or changed, put that file back from a backup"
            )
        for what, found, expected in (
            ("live files", num_adds, self.num_adds),
            ("bytes in live files", adds_size, self.adds_size),
        ):
            if expected is not None and found != expected:
                raise InvalidTableError(
                    f"the checkpoint of version {version} was not written: it would hold {found} "
                    f"{what}, and {teller} {expected}. {remedy}",
                    table=table,
                    version=version,
                    path=self.checksum,
                    found=found,
                    expected=expected,
                )


@dataclass(frozen=True, slots=True)
class CheckpointContent(NonFileContent):
    """The state of a version, to be written.

    Attributes:
        files: the live adds and the unexpired removes, in tables of any size and in any order.
        expected: the expected totals of the adds.
    """

    files: Iterable[FileActionTable]
    expected: ExpectedFiles = ExpectedFiles()


def write_classic_checkpoint(
    storage: Storage,
    content: CheckpointContent,
    *,
    version: int,
    table: str,
    replaces: bool = False,
) -> CheckpointWritten:
    """Write and publish the checkpoint of a version.

    Args:
        storage: the table's storage.
        content: the state of the version.
        version: the version of the table.
        table: the table's location, for errors.
        replaces: whether an existing file of that name is replaced: a damaged one. Another writer's
            file might be in use.

    Raises:
        ObjectExistsError: there is one. Nothing is published.
        CorruptLogError: an action lacks a field that the protocol requires.
        InvalidTableError: the number or size of the adds isn't as expected, or the metadata is
            broken. Nothing is published.
    """
    path = checkpoint_path(version)
    typed = typed_columns(content.protocol, content.metadata, table=table)
    texts = TableProperties(content.metadata.configuration, table).write_stats_as_json
    schema = checkpoint_schema(stats=texts, parsed=typed.fields if typed else ())
    with (
        report_progress("checkpoint", "files", content.expected.num_adds) as reporter,
        open_idempotent_writer(storage, path, replaces=replaces) as stream,
    ):
        with new_action_file(
            stream, schema, table=table, version=version, reporter=reporter
        ) as rows:
            rows.write_non_file_actions(non_file_actions(content))
            rows.write_files(content.files, typed)
        # Publish only what was counted right; an error abandons the file.
        content.expected.check(
            num_adds=rows.num_adds, adds_size=rows.adds_size_sum, version=version, table=table
        )
        size = stream.tell()
    return CheckpointWritten(
        version, path, size, rows.num_actions, rows.num_adds, rows.adds_size_sum
    )


def non_file_actions(content: NonFileContent) -> dict[str, list[Mapping[str, Any]]]:
    """The non-file actions by kind, as JSON objects in which a field may be null."""
    return {
        "protocol": [_protocol_json(content.protocol)],
        "metaData": [content.metadata.to_json()],
        "txn": [txn.to_json() for txn in content.transactions],
        "domainMetadata": [d.to_json() for d in content.domains if not d.removed],
    }


def _protocol_json(protocol: Protocol) -> dict[str, Any]:
    """The protocol, with feature lists exactly if its versions require them.

    PROTOCOL.md, "Checkpoint Schema". A missing list would silently remove features from the table.
    """
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": sorted(protocol.reader_features or ())
        if protocol.min_reader_version >= 3
        else None,
        "writerFeatures": sorted(protocol.writer_features or ())
        if protocol.min_writer_version >= 7
        else None,
    }
