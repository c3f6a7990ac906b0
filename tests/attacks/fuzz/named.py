"""Which objects of a bucket the log of a case names, found without the engine."""

from __future__ import annotations

import io
import json
import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from tests.attacks.fuzz.files import File, Tree

__all__ = ["named_objects", "plain_key"]

_FIELDS = ("path", "pathOrInlineDv")
_SCHEME = re.compile(r"(?i)(?:s3[an]?://([^/]*)|(?=/)(?!//))")
_MOST_ROWS = 10_000
"""Of a Parquet file. Larger ones are bombs, which no case in a bucket has."""


def named_objects(tree: Tree, bucket: str) -> list[str]:
    """The keys in the bucket that absolute paths of the log lead to, in the form of `plain_key`.

    Args:
        tree: the files of the case.
        bucket: its name.
    """
    found: set[str] = set()
    for path, node in tree.items():
        if not isinstance(node, File) or "_delta_log/" not in path:
            continue
        for text in _paths(_values(path, node.content)):
            match = _SCHEME.match(text)
            if match is not None and match[1] in (None, bucket):
                found.add(plain_key(unquote(text[match.end() :], errors="surrogateescape")))
    return sorted(found - {"."})


def plain_key(key: str) -> str:
    """A key without empty segments and dots, as stores may take it."""
    return posixpath.normpath(key.lstrip("/"))


def _values(path: str, content: bytes) -> Iterator[Any]:
    if path.endswith(".parquet"):
        with suppress(Exception):  # of what is no Parquet, nothing can be read
            file = pq.ParquetFile(io.BytesIO(content))
            if file.metadata.num_rows <= _MOST_ROWS:
                yield file.read().to_pylist()
        return
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):
            yield json.loads(line)


def _paths(values: Iterator[Any]) -> Iterator[str]:
    """The texts in the fields that name files, however deep they are."""
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
            yield from (value[name] for name in _FIELDS if isinstance(value.get(name), str))
        elif isinstance(value, list):
            pending += value
