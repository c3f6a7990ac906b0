"""The forms that one past can take in a log: what each comes to must be the same.

``FORMS`` names functions from a history to files. In all but the first, the commits that a
checkpoint stands for are gone, so that it is the checkpoint that is read.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.table_builder import (
    Files,
    History,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    multipart_checkpoint,
    states,
    v2_checkpoint,
)

__all__ = ["FORMS", "Form"]

Form = Callable[[History], Files]


def _last(history: History) -> int:
    return len(history) - 1


def _without_commits(files: Files, versions: range) -> Files:
    gone = {commit_file(version) for version in versions}
    return {path: content for path, content in files.items() if path not in gone}


def _our_checkpoint(history: History) -> Files:
    with MemoryTable(commits(history)) as table:
        table.delta().checkpoint()
        return _without_commits(table.files(), range(len(history)))


def _our_checkpoint_and_tail(history: History) -> Files:
    """Our checkpoint of the first version, and the commits after it."""
    with MemoryTable(commits(history)) as table:
        table.delta().checkpoint(version=0)
        return _without_commits(table.files(), range(1))


def _foreign_checkpoint(history: History) -> Files:
    return classic_checkpoint(states(history)[-1], _last(history))


def _parts(history: History) -> Files:
    return multipart_checkpoint(states(history)[-1], _last(history), parts=2)


def _v2_in_json(history: History) -> Files:
    return v2_checkpoint(states(history)[-1], _last(history), form="json", sidecars=0)


def _v2_with_sidecars(history: History) -> Files:
    return v2_checkpoint(states(history)[-1], _last(history), form="parquet", sidecars=2)


def _compaction(history: History) -> Files:
    """All commits, and a compaction of them; the commit of the last version tells its time."""
    return commits(history) | compaction(states(history)[-1], _last(history), expired=True)


FORMS: dict[str, Form] = {
    "commits": commits,
    "our checkpoint": _our_checkpoint,
    "our checkpoint and a tail": _our_checkpoint_and_tail,
    "foreign checkpoint": _foreign_checkpoint,
    "parts": _parts,
    "v2 in JSON": _v2_in_json,
    "v2 with sidecars": _v2_with_sidecars,
    "compaction": _compaction,
}
