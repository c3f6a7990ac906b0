"""Check the rules that hold for every commit, independent of the table's features.

`Actions` can't have more than one ``protocol`` and one ``metaData``, so this needs no check.

PROTOCOL.md, "Delta Log Entries" of "Requirements for Writers", "Add File and Remove File", "Protocol
Evolution" and "Column Mapping"; RFC checkpoint-protection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from airflow_delta.engine.features.change_columns import check_no_change_columns
from airflow_delta.engine.features.column_mapping import MAX_COLUMN_ID, mapping_mode
from airflow_delta.engine.features.dropping import PROTECTION, PROTECTION_BOUNDARY
from airflow_delta.engine.features.negotiation.upgrade import check_metadata, check_no_shrinking
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile, RemoveFile
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import DropFeatures
from airflow_delta.engine.transaction.prepare.table_columns import schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_files", "check_table", "check_transactions"]

_PREVIEW = "-preview"


def check_table(actions: Actions, context: CommitContext) -> Actions:
    """Check that protocol and metadata are valid, and that they may follow those before.

    Raises:
        ConstraintViolationError: the first version lacks one of them; the table's id changes; the metadata
            start to use a feature that the protocol lacks; or the highest column id, or the version below
            which checkpoints are protected, decreases.
        InvalidTableError: the protocol loses a feature other than managed commits and those that the commit
            drops; protocol, schema, partition columns and properties contradict each other; or a table that
            keeps change data gets a column with a name that changes have.
        UnsupportedFeatureError: the engine can't commit to such a table.
    """
    base = context.base
    if base is None and not (actions.protocol and actions.metadata):
        raise context.violation("the first version needs a protocol and a metaData action")
    if actions.protocol and base:
        purpose = actions.purpose
        dropped = purpose.features if isinstance(purpose, DropFeatures) else frozenset[str]()
        check_no_shrinking(base.protocol, actions.protocol, dropped=dropped, table=context.table)
    if not (actions.protocol or actions.metadata):
        return actions
    if base and context.metadata.id != base.metadata.id:
        # Streams, caches and clones identify a table by its id.
        raise context.violation(
            f"the table's id changes from {base.metadata.id!r} to {context.metadata.id!r}; keep it"
        )
    schema_after(context)  # checks that the partition columns are in it
    check_metadata(context.protocol, context.metadata, table=context.table)
    _check_change_columns(base, context)
    if base:
        _check_highest_id(base, context)
        _check_boundary(base, context)
    if missing := _new_features(context.metadata, context):
        raise context.violation(
            f"its metadata uses the features {missing}, which the protocol lacks; add them to the "
            "protocol in the same commit"
        )
    return actions


def _check_change_columns(base: Snapshot | None, context: CommitContext) -> None:
    if not _keeps_changes(context.protocol, context.metadata, context.table):
        return
    kept = base is not None and _keeps_changes(base.protocol, base.metadata, base.table)
    known = base.schema.names if base is not None and kept else ()
    check_no_change_columns(schema_after(context), known=known, table=context.table)


def _keeps_changes(protocol: Protocol, metadata: Metadata, table: str) -> bool:
    properties = TableProperties(metadata.configuration, table)
    return "changeDataFeed" in supported_features(protocol) and properties.change_data_feed_enabled


def _check_highest_id(base: Snapshot, context: CommitContext) -> None:
    """Check that the highest column id doesn't decrease, unless column mapping is turned off."""
    highest = context.properties.column_mapping_max_column_id or 0
    least = base.properties.column_mapping_max_column_id or 0
    mapped = mapping_mode(context.protocol, context.metadata, table=context.table) != "none"
    was_mapped = mapping_mode(base.protocol, base.metadata, table=base.table) != "none"
    # Without column mapping no column has an id. If it is turned on again, the ids begin again.
    is_turned_off = was_mapped or "columnMapping" not in context.supported
    if highest < least and (mapped or not is_turned_off):
        raise context.violation(
            f"{MAX_COLUMN_ID} decreases from {least} to {highest}, so that the ids in between would be "
            "assigned again; keep the property"
        )


def _check_boundary(base: Snapshot, context: CommitContext) -> None:
    """Check that protected checkpoints stay protected, unless the feature is dropped."""
    if PROTECTION not in supported_features(base.protocol) & context.supported:
        return
    boundary = context.properties.require_checkpoint_protection_before_version
    least = base.properties.require_checkpoint_protection_before_version
    if boundary < least:
        raise context.violation(
            f"{PROTECTION_BOUNDARY} decreases from {least} to {boundary}, so that the checkpoints in "
            "between, which hide versions with dropped features, would be unprotected; keep the property"
        )


def _new_features(metadata: Metadata, context: CommitContext) -> list[str]:
    """The features that new metadata start to use, but that the protocol doesn't support.

    Metadata that used such a feature before may keep doing so: without the feature in the protocol its
    properties mean nothing.
    """
    active = _active_features(metadata, context.table)
    if context.files_source is not None:
        active -= _active_features(context.files_source.metadata, context.table)
    supported = {name.removesuffix(_PREVIEW) for name in supported_features(context.protocol)}
    return sorted(name for name in active if name not in supported)


def _active_features(metadata: Metadata, table: str) -> set[str]:
    """The features that metadata use. A preview has the name of the final feature."""
    properties = TableProperties(metadata.configuration, table)
    schema = parse_schema(metadata.schema_string, table)
    return {
        name.removesuffix(_PREVIEW)
        for name, feature in FEATURES.items()
        if feature.active is not None and feature.active(properties, schema)
    }


def check_transactions(actions: Actions, context: CommitContext) -> Actions:
    """Check that no application has two transaction identifiers.

    Raises:
        ConstraintViolationError: an application has two.
    """
    counts = Counter(txn.app_id for txn in actions.transactions)
    app_id, count = next(iter(counts.most_common(1)), ("", 0))
    if count > 1:
        raise context.violation(
            f"the application {app_id!r} has {count} txn actions; a commit may hold one"
        )
    return actions


def check_files(actions: Actions, context: CommitContext) -> Actions:
    """Check that no file has two actions of one kind, and that none is both added and removed unchanged.

    `logical_files` compares the actions with the table's files.

    Raises:
        ConstraintViolationError: a file breaks a rule, or a path is no well-formed URI.
    """
    kinds: Mapping[str, Sequence[AddFile | RemoveFile | AddCdcFile]] = {
        "add": actions.adds,
        "remove": actions.removes,
        "cdc": actions.cdc,
    }
    for kind, files in kinds.items():
        # A loop over the files of one commit: they came as objects, from one writer.
        paths = [context.path_key(file) for file in files]
        if len(set(paths)) < len(paths):
            path, count = Counter(paths).most_common(1)[0]
            raise context.violation(
                f"the file {path!r} has {count} {kind} actions; a commit may have one"
            )
    removed = {_file_key(file, context) for file in actions.removes}
    for file in actions.adds if removed else ():
        if _file_key(file, context) in removed:
            raise context.violation(
                f"the file {file.path!r} is both added and removed with the same deletion vector; a "
                "commit may only do one of them"
            )
    return actions


def _file_key(file: AddFile | RemoveFile, context: CommitContext) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return context.path_key(file), vector.unique_id if vector else None
