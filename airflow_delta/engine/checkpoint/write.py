"""Write a classic checkpoint: one Parquet file of the V1 spec with the whole state of a version.

PROTOCOL.md, "Checkpoints", "V1 Spec": ``protocol``, ``metaData``, all live ``add``, the unexpired
``remove``, ``txn`` and ``domainMetadata`` actions, one a row, laid out as `action_rows` says. The
file gets its name only when everything has been written and counted; until then, and after any
failure, there is no file.

What a caller answers for: that the protocol of the version lets us write, that the version's commit
exists (and is backfilled, where a commit owner ratifies it), and which tombstones and transactions
have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.checkpoint.action_rows import FileActionTable, new_action_file
from airflow_delta.engine.checkpoint.idempotent_put import own_file
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.typed_columns import typed_columns
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.model.properties import TableProperties
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
        version: the version of the table it holds.
        path: its path below the table's root.
        size_in_bytes: of the file, or of the top level and all sidecars.
        num_actions: how many actions, of any kind, it holds.
        num_adds: how many of them are adds.
        adds_size_sum: the sum of the sizes of the files added, in bytes.
        hint_content: what ``_last_checkpoint`` shall repeat of it; None for nothing.
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
    """What publishing a checkpoint has cost, of either spec.

    Attributes:
        checkpoint: its totals.
        sidecars_written: sidecars that are new.
        sidecars_reused: sidecars of an earlier checkpoint that it names too.
        bytes_written: bytes of the file, or of the top level and the new sidecars.
    """

    checkpoint: CheckpointWritten
    sidecars_written: int
    sidecars_reused: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class NonFileContent:
    """The state of a version but for its files.

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
    """What the live files of a version must come to, as told by somebody else than the writer.

    Attributes:
        num_adds: how many there are; None if nobody has counted.
        adds_size: their sizes summed up, in bytes; None if nobody has.
        checksum: the version checksum that tells it, below the table's root; None if another does.
    """

    num_adds: int | None = None
    adds_size: int | None = None
    checksum: str | None = None

    def check(self, *, num_adds: int, adds_size: int, version: int, table: str) -> None:
        """Refuse a checkpoint that holds anything else.

        Raises:
            InvalidTableError: the numbers differ. Facts: found, expected, and path of the checksum.
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
        expected: what the adds must come to.
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
        replaces: whether one of that name is to be replaced: one that is damaged. Another writer's
            may be being read.

    Raises:
        ObjectExistsError: there is one. Nothing is published.
        CorruptLogError: an action lacks what the protocol requires of it.
        InvalidTableError: the adds aren't as many, or as large, as expected, or the metadata is
            broken. Nothing is published.
    """
    path = checkpoint_path(version)
    typed = typed_columns(content.protocol, content.metadata, table=table)
    texts = TableProperties(content.metadata.configuration, table).write_stats_as_json
    schema = checkpoint_schema(stats=texts, parsed=typed.fields if typed else ())
    with own_file(storage, path, replaces=replaces) as stream:
        with new_action_file(stream, schema, table=table, version=version) as rows:
            rows.write_non_file_actions(non_file_actions(content))
            rows.write_files(content.files, typed)
        # Only what is counted right gets a name; an error abandons the file.
        content.expected.check(
            num_adds=rows.num_adds, adds_size=rows.adds_size_sum, version=version, table=table
        )
        size = stream.tell()
    return CheckpointWritten(
        version, path, size, rows.num_actions, rows.num_adds, rows.adds_size_sum
    )


def non_file_actions(content: NonFileContent) -> dict[str, list[Mapping[str, Any]]]:
    """The actions that aren't files, by kind, as JSON objects in which a field may be null."""
    return {
        "protocol": [_protocol_json(content.protocol)],
        "metaData": [content.metadata.to_json()],
        "txn": [txn.to_json() for txn in content.transactions],
        "domainMetadata": [d.to_json() for d in content.domains if not d.removed],
    }


def _protocol_json(protocol: Protocol) -> dict[str, Any]:
    """The protocol with its feature lists there where the versions want them, and only there.

    PROTOCOL.md, "Checkpoint Schema". A list left out would silently take features from the table.
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
