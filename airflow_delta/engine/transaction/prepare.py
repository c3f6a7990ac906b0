"""Check staged actions against the protocol and write them as the lines of a commit.

PROTOCOL.md, "Actions" and "Requirements for Writers"; in-commit-timestamps.md; edge cases B14, E11.
Each check is a pure function of the table's state and the staged actions; `PREPARATIONS` is their
order. Whatever they refuse is refused before anything is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.transaction.staged import StagedActions

__all__ = ["CommitContext", "commit_text", "prepare"]


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The table that a commit will give: its own protocol and metadata where it brings them."""

    table: str
    version: int
    protocol: Protocol
    metadata: Metadata


def prepare(staged: StagedActions, context: CommitContext) -> None:
    """Check staged actions.

    Raises:
        ConstraintViolationError: they break a rule of the protocol or of the table.
        InvalidTableError: the table's own metadata contradicts the protocol.
    """
    for check in PREPARATIONS:
        check(staged, context)


def _first_version_is_whole(staged: StagedActions, context: CommitContext) -> None:
    if context.version == 0 and not (staged.protocol and staged.metadata):
        raise _violation(context, "the first version needs a protocol and a metaData action")


def _one_action_per_file(staged: StagedActions, context: CommitContext) -> None:
    for kind, files in (("add", staged.adds), ("remove", staged.removes)):
        path, count = next(iter(Counter(file.path for file in files).most_common(1)), ("", 0))
        if count > 1:
            raise _violation(
                context, f"the file {path!r} has {count} {kind} actions; a commit may hold one"
            )
    removed = {(file.path, _vector_id(file)) for file in staged.removes}
    for file in staged.adds:
        if (file.path, _vector_id(file)) in removed:
            raise _violation(
                context,
                f"the file {file.path!r} is added and removed with one deletion vector; a commit may "
                "do one of them",
            )


def _vector_id(file: Any) -> str | None:
    return file.deletion_vector.unique_id if file.deletion_vector else None


def _partition_values_fit(staged: StagedActions, context: CommitContext) -> None:
    schema = table_schema(context.metadata, table=context.table)
    mode = mapping_mode(context.protocol, context.metadata, table=context.table)
    partitioning = set(context.metadata.partition_columns)
    columns = {physical_name(field, mode) for field in schema if field.name in partitioning}
    for file in staged.adds:
        if set(file.partition_values) != columns:
            raise _violation(
                context,
                f"the file {file.path!r} has partition values for {sorted(file.partition_values)}; "
                f"the table is partitioned by {sorted(columns)}",
            )


def _append_only_is_kept(staged: StagedActions, context: CommitContext) -> None:
    properties = TableProperties(context.metadata.configuration, context.table)
    if properties.append_only and any(file.data_change for file in staged.removes):
        raise _violation(
            context,
            "the table is append-only (delta.appendOnly=true), and the commit removes data; set the "
            "property to false first",
        )


PREPARATIONS = (
    _first_version_is_whole,
    _one_action_per_file,
    _partition_values_fit,
    _append_only_is_kept,
)
"""Every check of a commit, in order."""


def commit_text(staged: StagedActions, commit_info: Mapping[str, Any]) -> bytes:
    """The commit file: one action a line, ``commitInfo`` first, as in-commit timestamps need it."""
    actions: list[dict[str, Any]] = [{"commitInfo": commit_info}]
    if staged.protocol:
        actions.append({"protocol": staged.protocol.to_json()})
    if staged.metadata:
        actions.append({"metaData": staged.metadata.to_json()})
    actions += [{"txn": txn.to_json()} for txn in staged.transactions.values()]
    actions += [{"domainMetadata": domain.to_json()} for domain in staged.domains.values()]
    # Loops over the files of one commit: they came as objects, from one writer.
    actions += [{"remove": file.to_json()} for file in staged.removes]
    actions += [{"add": file.to_json()} for file in staged.adds]
    lines = (json.dumps(a, separators=(",", ":"), ensure_ascii=False) for a in actions)
    return ("\n".join(lines) + "\n").encode("utf-8")


def _violation(context: CommitContext, rule: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"the commit of version {context.version} was refused: {rule}",
        table=context.table,
        version=context.version,
    )
