"""Check paths, sizes and times of the files that a commit adds.

Sizes and times must not be negative. A path must be a URI, because a broken escape would make the whole
table unreadable. A file must not lie in the table's log, where a cleanup might delete it.

Removes aren't checked: a file that is in the table all the same must be removed as the log spells it.

PROTOCOL.md, "Add File and Remove File" and "Add CDC File".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.model.actions import AddCdcFile, AddFile
from airflow_delta.engine.model.paths import decode_path, resolve
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_new_files"]


def check_new_files(actions: Actions, context: CommitContext) -> Actions:
    """Check paths, sizes and times of added files.

    Raises:
        ConstraintViolationError: a file has a negative size or time, a path that can't be decoded, or a
            path in the table's log.
    """
    _check_counts("add", actions.adds, ("size", "modification_time"), context)
    _check_counts("cdc", actions.cdc, ("size",), context)
    # A loop over the files of one commit: they came as objects, from one writer.
    for path in chain((file.path for file in actions.adds), (file.path for file in actions.cdc)):
        _check_is_decodable(path, context)
        if _may_be_in_log(path) and _is_in_log(path, context.table):
            raise context.violation(
                f"the file {path!r} lies in the table's log, where a cleanup may take it; put data "
                "files elsewhere"
            )
    return actions


def _check_is_decodable(path: str, context: CommitContext) -> None:
    if "%" not in path:
        return
    try:
        decode_path(path)
    except CorruptLogError as error:
        raise context.violation(
            f"the path {path!r} is no URI ({error.message}): expected '%' to be written as '%25'"
        ) from error


def _check_counts(
    kind: str,
    files: Sequence[AddFile | AddCdcFile],
    names: Sequence[str],
    context: CommitContext,
) -> None:
    for name in names if files else ():
        least: AddFile | AddCdcFile = min(files, key=attrgetter(name))
        if getattr(least, name) < 0:
            raise context.violation(
                f"{kind}.{least.log_fields[name].key} of the file {least.path!r}: expected a number from "
                f"0 on, found {getattr(least, name)}"
            )


def _may_be_in_log(path: str) -> bool:
    """Whether the path must be resolved to decide, which would be slow for each of many files."""
    return LOG_DIRECTORY in path or ("%" in path and (path[0] in "_%./" or ":" in path))


def _is_in_log(path: str, table: str) -> bool:
    location, root = resolve(table, path), resolve(table, "")
    if not location.startswith(root):
        return False
    parts = (part for part in location[len(root) :].split("/") if part not in ("", "."))
    return next(parts, "") == LOG_DIRECTORY
