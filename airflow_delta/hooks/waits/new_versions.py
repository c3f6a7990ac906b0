"""Watch a table for new versions: one poll for all watchers, and a mark for each watcher.

`VersionPoll` finds the newest version; if nothing is new, that takes one request. `VersionWatcher`
compares it with the `Mark` of a watcher, and describes the new versions. Everything here blocks: triggers
call it in a thread.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.commit_mark import commit_mark, read_commit_mark
from airflow_delta.hooks.readable_history import readable_history
from airflow_delta.hooks.table_locations import canonical_uri

if TYPE_CHECKING:
    from airflow_delta.engine import CommitInfo, DeltaTable, Snapshot

__all__ = ["Filters", "Mark", "VersionPoll", "VersionWatcher"]

_CONFIRM_EVERY = 20
"""One of so many polls confirms that the newest version still exists; the table may be another one now."""

_MOST_COMMITS = 1000
"""If more versions are new at once, their commits aren't read, and all count as passing the filters."""


_LONGEST_OPERATION = 200


class VersionPoll:
    """Polls a table for its newest version."""

    def __init__(self) -> None:
        self._table: DeltaTable | None = None
        self._newest: Snapshot | None = None
        self._polls = 0

    def look(self, table: DeltaTable) -> Snapshot | None:
        """Find the newest version; None if there is no table.

        :param table: the table. A new object for the same table may have other credentials, so the version
            is opened again.
        :raises DeltaError: the table can't be read.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        self._polls += 1
        if table is not self._table:
            self._table, self._newest = table, None
        try:
            if self._newest is None or self._has_news(table, self._newest):
                self._newest = _open(table)
        except TableNotFoundError:
            self._newest = None
        return self._newest

    def _has_news(self, table: DeltaTable, newest: Snapshot) -> bool:
        version, find = newest.version, _finder(table, newest)
        if find(version, confirm=False) != version:
            return True
        return self._polls % _CONFIRM_EVERY == 0 and _is_other_commit(table, newest, find)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which versions a watcher reports.

    Attributes:
        operations: the names of operations, in upper case; none: all.
        min_new_versions: at least this many versions must pass the other filters.
        data_change_only: only versions that change rows, and not only their files or the metadata.
    """

    operations: tuple[str, ...] = ()
    min_new_versions: int = 1
    data_change_only: bool = False

    def key(self, table_uri: str) -> str:
        """A short text that is the same for the same table and filters."""
        text = json.dumps([canonical_uri(table_uri), asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a watcher has reported and seen.

    Attributes:
        version: the last version that was reported; -1 for none of the table.
        examined: the last version whose commit was compared with the filters.
        matched: how many of the versions after ``version`` pass them.
        table_id: the id of the table; None if there was no table.
        commit: the `commit_mark` of ``commit_version``, if it has one.
        commit_version: a version that was examined; None: ``examined``.
    """

    version: int
    examined: int
    matched: int = 0
    table_id: str | None = None
    commit: str | None = None
    commit_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The mark as JSON values, for the state of an asset."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Mark | None:
        """Parse a stored mark; None if there is none."""
        if not isinstance(value, Mapping):
            return None
        return cls(
            **{field.name: value[field.name] for field in fields(cls) if field.name in value}
        )

    def for_other_filters(self) -> Mark:
        """The mark with which a watcher of the same table begins that has other filters.

        It compares all versions that weren't reported with its own filters.
        """
        identified = self.examined if self.commit_version is None else self.commit_version
        return replace(self, examined=self.version, matched=0, commit_version=identified)


class VersionWatcher:
    """Finds what is new for one watcher.

    :param table_uri: the table.
    :param filters: which versions are reported.
    """

    def __init__(self, table_uri: str, filters: Filters) -> None:
        self._table_uri = canonical_uri(table_uri)
        self._filters = filters

    def begin(self, newest: Snapshot | None) -> Mark:
        """The mark of a watcher that begins: the newest version isn't reported any more.

        :param newest: the newest version; None if there is no table, whose versions will all be new.
        :raises DeltaError: the table can't be read.
        """
        if newest is None:
            return Mark(-1, -1)
        commit = read_commit_mark(newest, newest.version)
        return Mark(newest.version, newest.version, 0, newest.metadata.id, commit)

    def examine(self, newest: Snapshot, mark: Mark) -> tuple[Mark, dict[str, Any] | None]:
        """Compare the newest version with a mark.

        :returns: the new mark, and the payload of an event; None if there is nothing to report.
        :raises DeltaError: the table can't be read.
        """
        change = _table_change(newest, mark)
        if change is None and newest.version == mark.examined:
            return mark, None
        begin = Mark(-1, -1) if change in ("recreated", "rolled_back") else mark
        commits = _new_commits(newest, begin.examined)
        if change is None:
            change = _change_by_operation(commits)
        matched = begin.matched + self._count(newest, begin, commits)
        last = commits[0] if commits else None
        seen = replace(
            begin,
            examined=newest.version,
            matched=matched,
            table_id=newest.metadata.id,
            commit=None if last is None else commit_mark(last.raw),
            commit_version=None,
        )
        # A new history is always reported, because events about the former one are obsolete.
        if matched < self._filters.min_new_versions and begin is mark:
            return seen, None
        payload = self._payload(newest, begin, commits, change)
        return replace(seen, version=newest.version, matched=0), payload

    def _payload(
        self, newest: Snapshot, mark: Mark, commits: Sequence[CommitInfo], change: str | None
    ) -> dict[str, Any]:
        last = commits[0].to_dict() if commits else {}
        return {
            "table_uri": self._table_uri,
            "table_id": newest.metadata.id,
            "after_version": mark.version,
            "version": newest.version,
            "timestamp": last.get("timestamp"),
            "operation": _short(last.get("operation")),
            "task_run": last.get("task_run"),
            "table_change": change,
        }

    def _count(self, newest: Snapshot, mark: Mark, commits: Sequence[CommitInfo]) -> int:
        """How many of the versions after ``examined`` pass the filters."""
        number = newest.version - mark.examined
        if len(commits) < number:
            # Commits that can't be read may have passed the filters.
            return number
        found = 0
        for info in commits:
            if self._passes(newest, info):
                found += 1
                if mark.matched + found >= self._filters.min_new_versions:
                    break
        return found

    def _passes(self, newest: Snapshot, info: CommitInfo) -> bool:
        operations = self._filters.operations
        if operations and (info.operation or "").upper() not in operations:
            return False
        return not self._filters.data_change_only or _changes_data(newest, info.version)


def _short(operation: str | None) -> str | None:
    """The name of an operation, which any writer may have made long, for an event."""
    return operation if operation is None else operation[:_LONGEST_OPERATION]


def _finder(table: DeltaTable, newest: Snapshot) -> Callable[..., int]:
    """The function that finds the latest version with the fewest requests."""
    from airflow_delta.engine.features.managed_commits import commit_owner
    from airflow_delta.engine.features.protocol import supported_features
    from airflow_delta.engine.log.newest import find_latest_version

    if commit_owner(supported_features(newest.protocol), newest.properties) is not None:
        return table.latest_version
    # Without an owner, all commits are in the log, also that of a conversion.
    return partial(find_latest_version, table.storage)


def _is_other_commit(table: DeltaTable, newest: Snapshot, find: Callable[..., int]) -> bool:
    """Whether the commit of the newest version is gone, or isn't the file any more that was read.

    One request as a rule. A commit of the same size and the same time isn't noticed.
    """
    from airflow_delta.engine.errors import ObjectNotFoundError
    from airflow_delta.engine.log.files import Commit

    known = newest.segment.last_commit
    try:
        found = table.storage.head(newest.segment.path_of(newest.version))
    except ObjectNotFoundError:
        # A cleanup may have deleted it.
        return find(newest.version, confirm=True) != newest.version
    if not isinstance(known, Commit):  # A cleanup had deleted it, or its name identifies it.
        return False
    return found.size != known.size or not _is_same_time(found.modified_ms, known.modified_ms)


def _is_same_time(one: int, other: int) -> bool:
    """Whether two times of a file in epoch ms may be the same.

    Some stores list milliseconds, but answer a request for one file with seconds.
    """
    if one % 1000 and other % 1000:
        return one == other
    return one // 1000 == other // 1000


def _open(table: DeltaTable) -> Snapshot:
    from airflow_delta.engine.log.newest_segment import load_newest_segment
    from airflow_delta.engine.snapshot.opening import open_newest

    return open_newest(table.storage, owners=table.commit_owners, find=load_newest_segment)


def _table_change(newest: Snapshot, mark: Mark) -> str | None:
    """What happened to the table as a whole since a mark, as far as ids show it; None for nothing."""
    if mark.table_id is None:
        return None
    identified = mark.examined if mark.commit_version is None else mark.commit_version
    found = None
    if newest.version >= identified and mark.commit is not None:
        found = read_commit_mark(newest, identified)
    is_same_id = newest.metadata.id == mark.table_id
    if newest.version < identified or found not in (None, mark.commit):
        return "rolled_back" if is_same_id else "recreated"
    if is_same_id:
        return None
    # If the log has the commit of the mark, it is the same log. Otherwise that isn't known.
    return "recreated" if found is None or newest.version == identified else "replaced"


def _change_by_operation(commits: Sequence[CommitInfo]) -> str | None:
    operations = [(info.operation or "").upper() for info in commits]
    if any("REPLACE TABLE" in operation for operation in operations):
        return "replaced"
    return "restored" if "RESTORE" in operations else None


def _new_commits(newest: Snapshot, after: int) -> list[CommitInfo]:
    """The commits after a version, newest first; only the newest if there are very many.

    A damaged commit and those before it are left out: one below a checkpoint must not stop the watcher.
    """
    number = newest.version - after
    return readable_history(newest, number if number <= _MOST_COMMITS else 1)


def _changes_data(newest: Snapshot, version: int) -> bool:
    """Whether a commit adds or removes files with changed rows."""
    from airflow_delta.engine.errors import ObjectNotFoundError

    try:
        content = newest.storage.read(newest.segment.path_of(version))
    except ObjectNotFoundError:  # It isn't known.
        return True
    # Line by line and not in Arrow, because usually the first file of a commit decides.
    for line in content.splitlines():
        if b'"dataChange"' not in line:
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):  # It is damaged, so it isn't known either.
            return True
        for kind in ("add", "remove"):
            if isinstance(action.get(kind), Mapping) and action[kind].get("dataChange"):
                return True
    return False
