"""The paths of the log: URIs in, plain locations out.

Spec: PROTOCOL.md, "Add File and Remove File": a path is relative to the table's root or absolute,
and "is a URI as specified by RFC 2396, which needs to be decoded to get the data file path".

Two forms must never be mixed up:

* a **log path** is encoded: ``k=a%2520b/part-0.parquet``. It is what actions hold and what file
  keys are made of.
* a **location** is decoded exactly once, and then literal: ``k=a%20b/part-0.parquet``. It is what a
  storage is asked for. A ``%`` that is left in it belongs to the name.

Encoding follows the reference writer (Java's ``java.net.URI``): everything a URI's path may hold,
and non-ASCII letters, stay; the rest becomes ``%XX`` of its UTF-8 bytes. One addition: a ``:`` in
the first segment of a relative path is encoded, since ``a:b`` would read as scheme ``a``
(RFC 2396, section 5, names the ambiguity).

Which actions mean the same file, two engines must agree on, so it is decided as in Delta Spark: by
``java.net.URI``, as `canonical_key` says. A location keeps the segments of its path; none with a ``..`` is
opened (``storage/file_access.py``).
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

# The characters of a URI's path (RFC 2396, section 3.3: pchar, ";" and "/"); the rest of ASCII is
# escaped, "%" included.
_PATH_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'():@&=+$,;/"
)
# What `java.net.URI` escapes beyond ASCII: spaces, line and paragraph separators, control codes.
_ESCAPED_CATEGORIES = frozenset({"Zs", "Zl", "Zp", "Cc"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_HIERARCHICAL = re.compile(r"(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
IRREGULAR_SEGMENT = re.compile(r"//|(^|/)\.{1,2}(/|$)")
"""What ``java.net.URI.normalize`` takes out of a path: empty segments, ``.`` and ``..``."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def encode_path(path: str) -> str:
    """The log path of a decoded path, relative to the table's root or absolute without a scheme."""
    encoded = "".join(map(_encoded, path))
    first, slash, rest = encoded.partition("/")
    return f"{first.replace(':', '%3A')}{slash}{rest}"


def decode_path(log_path: str) -> str:
    """Decode a log path once. A scheme and authority stay as they are: they hold no escapes.

    Raises:
        CorruptLogError: a ``%`` isn't followed by two hexadecimal digits, or the bytes it stands
            for are not UTF-8. Facts: path.
    """
    if "%" not in log_path:
        return log_path
    if _BROKEN_ESCAPE.search(log_path):
        raise CorruptLogError(
            f"path {log_path!r}: a '%' is not followed by two hexadecimal digits; paths in the log "
            "are URI-encoded",
            path=log_path,
        )
    try:
        return unquote_to_bytes(log_path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"path {log_path!r}: its escapes do not decode to UTF-8: {error.reason}",
            path=log_path,
        ) from error


def is_absolute(log_path: str) -> bool:
    """Whether a log path stands for itself, with a scheme or with a leading ``/``.

    A segment such as ``k=1:2`` is relative: ``=`` can't be part of a scheme.
    """
    return log_path.startswith("/") or _SCHEME.match(log_path) is not None


def resolve(table_root: str, log_path: str) -> str:
    """The decoded location of a file.

    Args:
        table_root: the table's location, literal; only a ``file:`` root is decoded, because nobody
            but a URI builder writes one. ``s3://bucket/a%20b`` means the key ``a%20b``, as in the
            object stores' own tools.
        log_path: the path of an action, encoded.

    Returns:
        A plain path for files of a local file system, else ``scheme://authority/key``. An absolute
        path without a scheme belongs to the file system of the table.

    Raises:
        CorruptLogError: the path is no well-formed URI. Facts: path.
    """
    scheme, authority, path = _split(log_path)
    if scheme:
        return _location(scheme, authority, decode_path(path))
    root_scheme, root_authority, root_path = _split(table_root)
    if root_scheme == "file":
        root_path = decode_path(root_path)
    # Told before decoding: "%2Fp" is a relative path.
    base = "" if path.startswith("/") else f"{root_path.rstrip('/')}/"
    return _location(root_scheme, root_authority, base + decode_path(path))


def canonical_key(log_path: str, *, table_root: str = "/") -> str:
    """The form of a log path by which the actions of one file find each other.

    Actions meet by path. Two paths are one as they are for Delta Spark, whose keys are URIs of Java:

    ====================================================  ============================
    ``%c3%a9`` and ``%C3%A9``                             one
    ``./a``, ``b/../a``, ``b//a`` and ``a``, ``b/a``      one, segments resolved
    ``file:/p``, ``file:///p`` and ``/p``                 one
    ``/p%40q`` and ``/p@q``, without a scheme             one, decoded
    ``%C3%A9`` and ``é``; ``%61`` and ``a``               two, unless without a scheme
                                                          and absolute
    ``a`` and ``file:/table/a``                           two
    ====================================================  ============================

    Args:
        log_path: the path of an action, encoded.
        table_root: the table's location; says which file system ``/p`` belongs to.

    Raises:
        CorruptLogError: an absolute path is no well-formed URI. Facts: path.
    """
    if not is_absolute(log_path):
        return _spelled(log_path)
    scheme, authority, path = _split(log_path)
    plain = decode_path(path)  # also for those with a scheme, for the error
    spelled = _spelled(path if scheme else encode_path(plain))
    if not scheme:
        scheme, authority, _ = _split(table_root)
    if _is_local(scheme, authority):
        return f"file:{spelled}"
    return f"{scheme}://{authority}{spelled}"


def _spelled(path: str) -> str:
    """An encoded path as ``java.net.URI.normalize`` spells it, escapes in upper case.

    Java compares the digits of escapes without regard to case, and normalises a path only if it has an
    empty segment, ``.`` or ``..``.
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
    # What names a directory goes on to do so.
    ended = "/" if kept and kept[-1] != ".." and segments[-1] in ("", ".", "..") else ""
    # Without the dot it would read as a scheme.
    dot = "./" if not rooted and kept and ":" in kept[0] else ""
    return f"{rooted}{dot}{'/'.join(kept)}{ended}"


def _encoded(character: str) -> str:
    if character in _PATH_CHARACTERS:
        return character
    if character > "\x7f" and unicodedata.category(character) not in _ESCAPED_CATEGORIES:
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8"))


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme (lower case), authority and path of a URI; scheme and authority are "" without one."""
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
