"""`Winner`: a commit that took the version that a transaction was trying to make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.arrow.action_schema import FileActions
from airflow_delta.engine.arrow.json_actions import parse_commits
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.storage.base import Storage

__all__ = ["Winner", "load_winner"]


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit that took the version before ours.

    Attributes:
        table: the table's location.
        version: the version it made.
        info: what it says of itself.
        files: the paths and deletion vectors of its file actions.
        changes_protocol: whether it has a ``protocol`` action.
        changes_metadata: whether it has a ``metaData`` action.
        app_ids: the applications whose ``txn`` it set.
        domains: the domains whose ``domainMetadata`` it set.
    """

    table: str
    version: int
    info: CommitInfo
    files: FileActions
    changes_protocol: bool
    changes_metadata: bool
    app_ids: frozenset[str]
    domains: frozenset[str]


def load_winner(storage: Storage, version: int) -> Winner:
    """Read the commit of a version.

    Raises:
        CorruptLogError: the commit is gone, or breaks the protocol.
        StorageError: the store failed.
    """
    path = commit_path(version)
    content = storage.read_many([path])[0]
    if content is None:
        raise CorruptLogError(
            f"{path} is missing below the newest version; a cleanup may have removed it",
            table=storage.root,
            version=version,
            path=path,
        )
    parsed = parse_commits([(version, content)], columns=("path",), table=storage.root)
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for action in parsed.small:
        by_kind.setdefault(action.kind, []).append(action.value)
    return Winner(
        table=storage.root,
        version=version,
        info=CommitInfo.from_json(next(iter(by_kind.get("commitInfo", [])), {}), version=version),
        files=parsed.files,
        changes_protocol="protocol" in by_kind,
        changes_metadata="metaData" in by_kind,
        app_ids=frozenset(str(txn.get("appId")) for txn in by_kind.get("txn", [])),
        domains=frozenset(str(d.get("domain")) for d in by_kind.get("domainMetadata", [])),
    )
