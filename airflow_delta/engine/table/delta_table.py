"""`DeltaTable`: a table by its location, and everything that can be done with it.

A facade: each method hands over to the module that implements it. Its methods stand in modules by subject:
`reading`, `writing`, `managed`, `maintenance`, `optimizing` and `repair`; `base` has what they share. To
make a `DeltaTable` does no I/O.

Methods import what they need when they are called, apart from the modules that open a table. So the version
or the history of a table is found without loading pyarrow and numpy, which would take most of the time and
memory. A snapshot loads them for the commits that no checkpoint covers, and for file actions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.table.maintenance import MaintenanceMethods
from airflow_delta.engine.table.managed import ManagedCommitMethods
from airflow_delta.engine.table.optimizing import OptimizeMethods
from airflow_delta.engine.table.reading import ReadMethods
from airflow_delta.engine.table.repair import RepairMethods
from airflow_delta.engine.table.writing import WriteMethods

if TYPE_CHECKING:
    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.engine.maintenance.convert.execution import ConvertResult

__all__ = ["DeltaTable"]


class DeltaTable(
    ReadMethods,
    WriteMethods,
    ManagedCommitMethods,
    MaintenanceMethods,
    OptimizeMethods,
    RepairMethods,
):
    """A Delta table.

    Args:
        uri: a path, as a text or a `pathlib.Path`, or a URI: ``file://``, ``memory://``, ``s3://``,
            ``gs://``, ``abfss://``.
        storage_options: credentials and settings of the store, by the names that its clients use; as
            ``credential_provider`` a function that returns credentials, for those that expire.
        commit_owners: commit owners of managed tables by name, beside those that are installed; see
            ``commit/registry.py``.
        allowed_outside: locations outside of the table below which it may read files that its log names, as
            a shallow clone has them, such as ``["s3://shared-lake/"]``. All other paths that lead out of
            the table are refused; see ``storage/file_access.py``.

    Raises:
        InvalidArgumentError: the location, an option or an allowed location makes no sense.
    """

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: StructType,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str | Sequence[str]] = (),
        properties: Mapping[str, str] | None = None,
        owner: str | None = None,
        conf: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        commit_owners: Mapping[str, CommitOwner] | None = None,
    ) -> DeltaTable:
        """Create an empty table: version 0.

        Args:
            uri: where; see the class.
            schema: the columns.
            partition_by: partition columns, in order.
            cluster_by: clustering columns, in order; a column inside a struct as a list of names.
            properties: table properties; ``delta.feature.<name>=supported`` adds a feature.
            owner: the name of the commit owner that gets the table; None: the file system manages it. See
                `convert_to_managed`. (The property ``delta.managedCommit.commitOwner`` does the same.)
            conf: what the owner is to know of the table; see `convert_to_managed`.
            name: a name for the metadata.
            description: a description for the metadata.
            storage_options: see the class.
            commit_owners: see the class.

        Raises:
            TableAlreadyExistsError: there is a table.
            InvalidArgumentError: an argument isn't of the type above; the partition columns aren't
                different columns, or are all there are; the table can't be clustered by the clustering
                columns; or a property is unknown, has a value that it can't have, or is for commits to
                write.
            InvalidTableError: schema, partitioning and properties don't fit together, or there is a
                stale log: files of an earlier table in ``_delta_log``.
            UnsupportedFeatureError: the properties ask for a feature that the engine can't write.
            CommitOwnerError: the commit owner isn't known here, can't be reached or doesn't agree.
            CommitOutcomeUnknownError: the store failed; the table may have been created.
            StorageError: the store failed, and no table was created.
        """
        from airflow_delta.engine.transaction.creation import create_table

        table = cls(uri, storage_options, commit_owners)
        create_table(
            table.storage,
            schema,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            owner=owner,
            conf=conf,
            name=name,
            description=description,
            owners=table._owners,
        )
        return table

    @classmethod
    def convert(
        cls,
        uri: str | os.PathLike[str],
        partition_schema: StructType | Mapping[str, str] | None = None,
        *,
        files: Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        collect_statistics: bool = True,
        once: tuple[str, int] | None = None,
        dry_run: bool = False,
        storage_options: Mapping[str, object] | None = None,
        commit_owners: Mapping[str, CommitOwner] | None = None,
    ) -> ConvertResult:
        """Convert a directory of Parquet files to a Delta table, in place; no data file is changed.

        The table has the columns of all files, all nullable, with statistics from their footers. A
        directory that is a Delta table already stays as it is, and the result says so.

        Args:
            uri: the directory; see the class.
            partition_schema: the columns in the names of its subdirectories (``day=2026-01-31``), with
                their types, in the order of the table's partition columns: a schema, or
                ``{"day": "date"}``; None for none.
            files: the files that shall be the table, as decoded paths below the directory; None for all
                whose names don't begin with ``_`` or ``.``.
            properties: table properties; see `create`. Column mapping, Iceberg compatibility and
                constraints can only be added afterwards.
            collect_statistics: whether to make statistics from the footers.
            once: a transaction identifier, by which a later call finds the commit of this one.
            dry_run: only plan.
            storage_options: see the class.
            commit_owners: see the class.

        Raises:
            InvalidArgumentError: an argument makes no sense; there are no files; the partition values of
                a file aren't as in ``partition_schema``; or there is another Delta table, or the output
                of a Spark stream, below the directory. Facts: path, if it is about a file.
            DataFileError: a file isn't Parquet, or is damaged. Facts: path.
            InvalidTableError: two files have a column of different types or spellings (facts: path,
                column); a column can't be one of a table; or files of a former table's log are left.
            UnsupportedFeatureError: a column is of a type that tables lack (facts: path, column), the
                properties request a feature that the engine can't write, or statistics of a file with
                encrypted columns are wanted (facts: path).
            MissingFilesError: a listed file doesn't exist. Facts: path.
            NotRegularFileError: there is a symbolic link. Facts: path.
            TableAlreadyExistsError: another writer has created a table concurrently.
            CommitOutcomeUnknownError: the store failed; the table may have been created.
            StorageError: the store failed, and no table was created.
        """
        from airflow_delta.engine.maintenance.convert.execution import convert_directory
        from airflow_delta.engine.maintenance.convert.plan import ConvertRequest

        table = cls(uri, storage_options, commit_owners)
        request = ConvertRequest(partition_schema, files, properties, collect_statistics)
        return convert_directory(
            table.file_access, table._owners, request, once=once, dry_run=dry_run
        )
