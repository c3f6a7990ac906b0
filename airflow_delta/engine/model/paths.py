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

Neither ``.`` nor ``..`` segments are resolved: the reference does not, and two engines must agree
on which actions mean the same file.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

from airflow_delta.engine.errors import CorruptLogError

__all__ = ["canonical_key", "decode_path", "encode_path", "is_absolute", "resolve"]

# The characters of a URI's path (RFC 2396, section 3.3: pchar, ";" and "/"); the rest of ASCII is
# escaped, "%" included.
_PATH_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'():@&=+$,;/"
)
# What `java.net.URI` escapes beyond ASCII: spaces, line and paragraph separators, control codes.
_ESCAPED_CATEGORIES = frozenset({"Zs", "Zl", "Zp", "Cc"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_HIERARCHICAL = re.compile(r"(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
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

    Actions meet by path, so all spellings of one absolute path get one key: ``/p@q``, ``file:/p@q``
    and ``file:///p%40q`` are the same file. A relative path is its own key, to the letter, even
    where an absolute one names the same file, as in the reference.

    Args:
        log_path: the path of an action, encoded.
        table_root: the table's location; says which file system ``/p`` belongs to.

    Raises:
        CorruptLogError: an absolute path is no well-formed URI. Facts: path.
    """
    if not is_absolute(log_path):
        return log_path
    scheme, authority, path = _split(log_path)
    encoded = encode_path(decode_path(path))
    if not scheme:
        scheme, authority, _ = _split(table_root)
    if _is_local(scheme, authority):
        return f"file:{encoded}"
    return f"{scheme}://{authority}{encoded}"


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
