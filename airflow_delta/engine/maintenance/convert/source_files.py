"""Find the files that become a table: by a listing of the directory, or by a list of paths.

A listing follows the rules of the reference implementation: names that begin with ``_`` or ``.`` are
hidden, unless they are directories of a partition (``_day=1``). All other files must be Parquet.

Directories that would result in wrong rows are refused: those with a symbolic link, which a listing would
leave out; with another Delta table, whose removed files would become rows; and with the output of a Spark
stream, which has a list of its valid files. Below hidden directories they don't matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    MissingFilesError,
    NotRegularFileError,
    ObjectNotFoundError,
)
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.maintenance.table_files.listing import (
    LISTED_SCHEMA,
    drop_phantoms,
    list_files,
    make_listing_batch,
)
from airflow_delta.engine.model.arguments import check_texts
from airflow_delta.engine.model.paths import IRREGULAR_SEGMENT, encode_path, resolve
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import FileInfo, Storage, check_path
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["list_source_files", "look_up_source_files"]

_HIDDEN = r"(?s)(^|/)[_.]([^/=]*/|[^/]*$)"
_OTHER_TABLE = rf"^(([^_./][^/]*|[_.][^/]*=[^/]*)?/)*{LOG_DIRECTORY}/"
"""A path of a log in a directory that isn't hidden."""

_STREAM = "_spark_metadata"
_BATCH = 1 << 14
_REQUESTS = 32


def list_source_files(access: FileAccess) -> pa.Table:
    """List the files of a directory that aren't hidden, by path; columns as in `LISTED_SCHEMA`.

    Args:
        access: opens the files of the directory.

    Raises:
        InvalidArgumentError: there is another Delta table below the directory, or it is the output of a
            Spark stream, or the name of a file isn't UTF-8. Facts: path.
        NotRegularFileError: there is a symbolic link. Facts: path.
        StorageError: the store failed.
    """
    storage = access.storage
    is_local = resolve(storage.root, "").startswith("/")
    files = _list_local(access) if is_local else list_files(storage)
    _check_no_other_owner(files["path"], storage.root)
    is_hidden = pc.match_substring_regex(files["path"], _HIDDEN)
    return _sorted(drop_phantoms(files.filter(pc.invert(is_hidden)), storage))


def look_up_source_files(storage: Storage, paths: Iterable[str]) -> pa.Table:
    """Look up the sizes and times of files; by path, columns as in `LISTED_SCHEMA`.

    Args:
        storage: the directory.
        paths: paths below it, decoded.

    Raises:
        InvalidArgumentError: a path isn't a relative path of a file below the directory, or is in its log,
            or is there twice. Facts: path.
        MissingFilesError: a file doesn't exist. Facts: path.
        NotRegularFileError: a path is a link, or goes through one.
        StorageError: the store failed.
    """
    checked = _check_paths(paths, storage.root)

    def _look_up(path: str) -> FileInfo:
        try:
            found = storage.head(path)
        except ObjectNotFoundError as error:
            raise MissingFilesError(
                f"files: the file {path!r} doesn't exist; correct the list",
                table=storage.root,
                path=path,
                paths=(path,),
                num_missing=1,
            ) from error
        return FileInfo(path, found.size, found.modified_ms)

    workers = _REQUESTS if storage.capabilities.remote else 1
    with report_progress("look up", "files", len(checked)) as reporter:
        found = reporter.count(map_ordered(_look_up, checked, workers=workers))
        return _sorted(_as_table(found))


def _check_paths(paths: Iterable[str], root: str) -> Sequence[str]:
    expected = "a list of paths below the directory, such as ['day=2026-01-31/0.parquet']"
    checked = check_texts("files", paths, expected, table=root)
    seen: set[str] = set()
    for path in checked:
        problem = None
        try:
            check_path(path)
            path.encode()
        except (InvalidArgumentError, UnicodeEncodeError):
            problem = "expected a relative path without '..', in UTF-8"
        if not path or path.endswith("/") or IRREGULAR_SEGMENT.search(path):
            problem = problem or "expected the path of a file, without empty segments and '.'"
        elif path.startswith(f"{LOG_DIRECTORY}/"):
            problem = problem or "it is in the log of the table to be"
        elif path in seen:
            problem = problem or "it is listed twice"
        if problem:
            raise InvalidArgumentError(f"files: {path!r}: {problem}", table=root, path=path)
        seen.add(path)
    return checked


def _list_local(access: FileAccess) -> pa.Table:
    with report_progress("list", "files") as reporter:
        return _as_table(reporter.count(_walk_without_links(access)))


def _walk_without_links(access: FileAccess) -> Iterator[FileInfo]:
    """Walk through a local directory, and refuse links that a listing would leave out."""
    storage, folders = access.storage, [""]
    while folders:
        folder = folders.pop()
        location = f"{resolve(storage.root, encode_path(folder)).rstrip('/')}/"
        for name in sorted(access.linked_names(location)):
            if not _is_hidden(name):
                raise _link(f"{folder}/{name}".lstrip("/"), storage.root)
        level = storage.level(folder)
        for info in level.files:
            _check_text(info.path, storage.root)
            yield info
        for path in level.folders:
            name = path.rpartition("/")[2]
            # Hidden directories may contain what they like, apart from what shows another owner.
            if not _is_hidden(name) or name in (LOG_DIRECTORY, _STREAM):
                _check_text(path, storage.root)
                folders.append(path)


def _is_hidden(name: str) -> bool:
    """Whether a directory is hidden by its name; see `_HIDDEN`."""
    return name.startswith(("_", ".")) and "=" not in name


def _check_text(path: str, root: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"the name of {path!r} isn't UTF-8, so that no log can name it; rename it",
            table=root,
            path=path,
        ) from error


def _link(path: str, root: str) -> NotRegularFileError:
    return NotRegularFileError(
        f"{path!r} is a symbolic link, and below the root of a table no link is followed; put there what "
        "it leads to, or give it a name that begins with '_' to leave it out",
        table=root,
        path=path,
        operation="list",
        found=path,
    )


def _check_no_other_owner(paths: pa.ChunkedArray, root: str) -> None:
    for pattern, what in (
        (
            _OTHER_TABLE,
            "is in the log of another Delta table, whose removed files would come back; ",
        ),
        (
            rf"(?s)^{_STREAM}/",
            "lists the files of a Spark stream that count, and others may be there; ",
        ),
    ):
        found = paths.filter(pc.match_substring_regex(paths, pattern))
        if len(found):
            path = found[0].as_py()
            raise InvalidArgumentError(
                f"{path!r} {what}give the paths of the files that shall be the table: files=[…]",
                table=root,
                path=path,
            )


def _as_table(infos: Iterable[FileInfo]) -> pa.Table:
    batches = []
    stream = iter(infos)
    while some := list(islice(stream, _BATCH)):
        batches.append(make_listing_batch(some))
    return pa.Table.from_batches(batches, LISTED_SCHEMA)


def _sorted(files: pa.Table) -> pa.Table:
    # The order of listings varies. The first file decides the order of the table's columns.
    return files.take(pc.array_sort_indices(files["path"].combine_chunks()))
