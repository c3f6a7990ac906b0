"""Check staged actions against the protocol, and write them as the lines of a commit.

PROTOCOL.md, "Actions" and "Requirements for Writers"; in-commit-timestamps.md; edge cases B14, E11.
`PREPARATIONS` is the order of the checks; those of single files are in `added_files` and
`removed_files`. They are made anew for each attempt, against the version that the attempt builds on,
and whatever they refuse is refused before anything of that attempt is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.transaction.added_files import (
    check_clustering_statistics,
    check_deletion_vectors,
    check_partition_values,
    check_row_ids,
)
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.removed_files import check_removed_files_are_live
from airflow_delta.engine.transaction.staged import StagedActions

__all__ = ["commit_text", "prepare"]


def prepare(staged: StagedActions, context: CommitContext) -> None:
    """Check staged actions.

    Raises:
        ConstraintViolationError: they break a rule of the protocol or of the table.
        InvalidTableError: the table's own metadata contradicts the protocol.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    for check in PREPARATIONS:
        check(staged, context)


def _first_version_is_whole(staged: StagedActions, context: CommitContext) -> None:
    if context.version == 0 and not (staged.protocol and staged.metadata):
        raise context.violation("the first version needs a protocol and a metaData action")


def _one_action_per_file(staged: StagedActions, context: CommitContext) -> None:
    for kind, files in (("add", staged.adds), ("remove", staged.removes)):
        counts = Counter(context.path_key(file) for file in files)
        path, count = next(iter(counts.most_common(1)), ("", 0))
        if count > 1:
            raise context.violation(
                f"the file {path!r} has {count} {kind} actions; a commit may hold one"
            )
    removed = {_file_key(file, context) for file in staged.removes}
    for file in staged.adds:
        if _file_key(file, context) in removed:
            raise context.violation(
                f"the file {file.path!r} is added and removed with one deletion vector; a commit may "
                "do one of them"
            )


def _file_key(file: AddFile | RemoveFile, context: CommitContext) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return context.path_key(file), vector.unique_id if vector else None


def _domains_are_supported(staged: StagedActions, context: CommitContext) -> None:
    if staged.domains and "domainMetadata" not in supported_features(context.protocol):
        raise context.violation(
            f"it sets the metadata domains {sorted(staged.domains)}, and the table lacks the feature "
            "domainMetadata; add it to the protocol first"
        )


def _append_only_is_kept(staged: StagedActions, context: CommitContext) -> None:
    properties = TableProperties(context.metadata.configuration, context.table)
    if properties.append_only and any(file.data_change for file in staged.removes):
        raise context.violation(
            "the table is append-only (delta.appendOnly=true), and the commit removes data; set the "
            "property to false first"
        )


PREPARATIONS = (
    _first_version_is_whole,
    _one_action_per_file,
    _domains_are_supported,
    _append_only_is_kept,
    check_partition_values,
    check_deletion_vectors,
    check_row_ids,
    check_clustering_statistics,
    check_removed_files_are_live,
)
"""Every check of a commit, in order; only the last one reads from the store."""


def commit_text(
    staged: StagedActions, commit_info: Mapping[str, Any], *, timestamp_ms: int
) -> bytes:
    """The commit file: one action a line, ``commitInfo`` first, as in-commit timestamps need it.

    Args:
        staged: the actions.
        commit_info: the commit's provenance.
        timestamp_ms: the time of the commit, at which files are deleted that are removed without
            saying when.
    """
    actions: list[dict[str, Any]] = [{"commitInfo": commit_info}]
    if staged.protocol:
        actions.append({"protocol": staged.protocol.to_json()})
    if staged.metadata:
        actions.append({"metaData": staged.metadata.to_json()})
    actions += [{"txn": txn.to_json()} for txn in staged.transactions.values()]
    actions += [{"domainMetadata": domain.to_json()} for domain in staged.domains.values()]
    # Loops over the files of one commit: they came as objects, from one writer.
    actions += [{"remove": _dated(file, timestamp_ms).to_json()} for file in staged.removes]
    actions += [{"add": file.to_json()} for file in staged.adds]
    lines = (json.dumps(a, separators=(",", ":"), ensure_ascii=False) for a in actions)
    return ("\n".join(lines) + "\n").encode("utf-8")


def _dated(file: RemoveFile, timestamp_ms: int) -> RemoveFile:
    if file.deletion_timestamp is not None:
        return file
    return replace(file, deletion_timestamp=timestamp_ms)
