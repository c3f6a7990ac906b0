"""Convert the paths of the log, which are URIs, to locations and to keys.

Two forms must not be confused:

* a **log path** is encoded: ``k=a%2520b/part-0.parquet``. Actions contain log paths.
* a **location** is decoded exactly once: ``k=a%20b/part-0.parquet``. Storages get locations. A ``%`` in it
  is part of the name. The segments of its path stay; a location with ``..`` is never opened
  (``storage/file_access.py``).

`encode_path` follows the reference writer (``java.net.URI``). `canonical_key` decides as Delta Spark does
which log paths are of the same file, because two engines must agree on that.

PROTOCOL.md, "Add File and Remove File": a path "is a URI as specified by RFC 2396, which needs to be
decoded to get the data file path".
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

from airflow_delta.engine.errors import CorruptLogError

__all__ = [
    "IRREGULAR_SEGMENT",
    "canonical_key",
    "decode_path",
    "encode_path",
    "is_absolute",
    "resolve",
]

# The characters of a URI's path (RFC 2396, section 3.3: pchar, ";" and "/"). The rest of ASCII is escaped,
# even "%".
_PATH_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'():@&=+$,;/"
)
# Categories that `java.net.URI` escapes beyond ASCII: spaces, line and paragraph separators, control codes.
_ESCAPED_CATEGORIES = frozenset({"Zs", "Zl", "Zp", "Cc"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_HIERARCHICAL = re.compile(r"(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
IRREGULAR_SEGMENT = re.compile(r"//|(^|/)\.{1,2}(/|$)")
"""The segments that ``java.net.URI.normalize`` removes from a path: empty ones, ``.`` and ``..``."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def encode_path(path: str) -> str:
    """Encode a path that is relative to the table's root, or absolute without a scheme, as a log path."""
    encoded = "".join(map(_encode_character, path))
    # A ":" in the first segment would make a scheme of what is before it (RFC 2396, section 5).
    first, slash, rest = encoded.partition("/")
    return f"{first.replace(':', '%3A')}{slash}{rest}"


def decode_path(log_path: str, *, table: str | None = None) -> str:
    """Decode a log path once. Scheme and authority stay, because they have no escapes.

    Args:
        log_path: the path of an action, encoded.
        table: the table's location, if it is known, for the error.

    Raises:
        CorruptLogError: a ``%`` isn't followed by two hexadecimal digits, or the escaped bytes aren't
            UTF-8. Facts: path.
    """
    if "%" not in log_path:
        return log_path
    if _BROKEN_ESCAPE.search(log_path):
        raise CorruptLogError(
            f"path {log_path!r}: a '%' is not followed by two hexadecimal digits; paths in the log "
            "are URI-encoded, so the writer of this one is at fault",
            table=table,
            path=log_path,
        )
    try:
        return unquote_to_bytes(log_path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"path {log_path!r}: its escapes do not decode to UTF-8: {error.reason}; its writer is "
            "at fault",
            table=table,
            path=log_path,
        ) from error


def is_absolute(log_path: str) -> bool:
    """Whether a log path has a scheme or a leading ``/``.

    A path such as ``k=1:2`` is relative, because ``=`` can't be part of a scheme.
    """
    return log_path.startswith("/") or _SCHEME.match(log_path) is not None


def resolve(table_root: str, log_path: str) -> str:
    """The decoded location of a file.

    Args:
        table_root: the table's location. It is only decoded if it has the scheme ``file``, because that is
            only written as a URI. ``s3://bucket/a%20b`` means the key ``a%20b``, as in the object stores'
            own tools.
        log_path: the path of an action, encoded.

    Returns:
        A plain path for files of a local file system, else ``scheme://authority/key``. An absolute path
        without a scheme is one on the file system of the table.

    Raises:
        CorruptLogError: the path is no well-formed URI. Facts: path.
    """
    scheme, authority, path = _split(log_path)
    if scheme:
        return _location(scheme, authority, decode_path(path, table=table_root))
    root_scheme, root_authority, root_path = _split(table_root)
    if root_scheme == "file":
        root_path = decode_path(root_path)
    # Decided before decoding: "%2Fp" is a relative path.
    base = "" if path.startswith("/") else f"{root_path.rstrip('/')}/"
    return _location(root_scheme, root_authority, base + decode_path(path, table=table_root))


def canonical_key(log_path: str, *, table_root: str = "/") -> str:
    """The form of a log path that is equal for all paths of the same file.

    Paths are the same as in Delta Spark, whose keys are ``java.net.URI``s:

    ====================================================  ===============================
    ``%c3%a9`` and ``%C3%A9``                             the same
    ``./a``, ``b/../a``, ``b//a`` and ``a``, ``b/a``      the same, by resolved segments
    ``file:/p``, ``file:///p`` and ``/p``                 the same
    ``/p%40q`` and ``/p@q``, without a scheme             the same, decoded
    ``%C3%A9`` and ``é``; ``%61`` and ``a``               different, unless without a
                                                          scheme and absolute
    ``a`` and ``file:/table/a``                           different
    ====================================================  ===============================

    Args:
        log_path: the path of an action, encoded.
        table_root: the table's location, for the file system of ``/p``.

    Raises:
        CorruptLogError: an absolute path is no well-formed URI. Facts: path.
    """
    if not is_absolute(log_path):
        return _normalize(log_path)
    scheme, authority, path = _split(log_path)
    plain = decode_path(path)  # also for those with a scheme, for the error
    normalized = _normalize(path if scheme else encode_path(plain))
    if not scheme:
        scheme, authority, _ = _split(table_root)
    if _is_local(scheme, authority):
        return f"file:{normalized}"
    return f"{scheme}://{authority}{normalized}"


def _normalize(path: str) -> str:
    """Normalise an encoded path as ``java.net.URI.normalize`` does, with escapes in upper case.

    Java ignores the case of escapes in comparisons. It only normalises a path that has an empty segment,
    ``.`` or ``..``.
    """
    path = _ESCAPE.sub(lambda escape: escape[0].upper(), path)
    if not IRREGULAR_SEGMENT.search(path):
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    rooted = "/" if path.startswith("/") else ""
    # The path of a directory keeps its final slash.
    end = "/" if kept and kept[-1] != ".." and segments[-1] in ("", ".", "..") else ""
    # Without the dot, the first segment would be read as a scheme.
    dot = "./" if not rooted and kept and ":" in kept[0] else ""
    return f"{rooted}{dot}{'/'.join(kept)}{end}"


def _encode_character(character: str) -> str:
    if character in _PATH_CHARACTERS:
        return character
    if character > "\x7f" and unicodedata.category(character) not in _ESCAPED_CATEGORIES:
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8"))


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme (in lower case), authority and path of a URI. Missing ones are empty."""
    match = _SCHEME.match(uri)
    if match is None:
        return "", "", uri
    # Always matches: both groups may be empty.
    rest = _HIERARCHICAL.fullmatch(uri, match.end())
    authority, path = rest.group("authority", "path") if rest else ("", "")
    return match.group(1).lower(), authority or "", path


def _is_local(scheme: str, authority: str) -> bool:
    return scheme in ("", "file") and authority in ("", "localhost")


def _location(scheme: str, authority: str, path: str) -> str:
    return path if _is_local(scheme, authority) else f"{scheme}://{authority}{path}"
