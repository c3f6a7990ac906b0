"""Make texts safe to show: those that others have written, and those that hold a secret.

Names of files and columns, operations and descriptions come from the table, and everybody with write
access to the table can put control characters into them: those that clear a screen, forge a line of a
log, or turn the direction of the text. `printable` escapes them where texts are shown: in errors,
warnings, logs and on the terminal. JSON escapes by itself.

A location may have a password before its host. `without_password` takes it away, from a location and from
each one in a longer text.
"""

from __future__ import annotations

import re

__all__ = [
    "has_password",
    "hide_user_of",
    "message_text",
    "printable",
    "public_text",
    "without_password",
    "without_user",
]

_MOST_SHOWN, _MOST_BEGIN = 10_000, 8_000
"""The most characters of a message that are shown, and how many of them are from its begin."""
_LEFT_OUT = "[… {:,} characters are left out …]"
_SPARE = 100
"""By how much a message may be longer, so that one with these words isn't shortened again."""

# Up to the last @ of what stands before the path: a password may have one in it.
_USER = re.compile(r"(?<=://)[^\s/?#]*@")


def printable(text: str) -> str:
    """The text with escapes, as of Python's literals, for what isn't printable.

    A space stays, and so do letters and signs of all scripts.
    """
    if text.isprintable():
        return text
    return text.translate(_Escapes())


def public_text(text: str) -> str:
    """The text as errors and logs show it: `printable`, `without_password`."""
    return printable(without_password(text))


def message_text(text: str) -> str:
    """The text as the message of an error: `public_text`, and without the middle of one that is too long.

    A table may have a text of any length where a message quotes it, such as the condition of a constraint.
    """
    # Passwords first: a half of one wouldn't be recognised.
    return _shortened(printable(_shortened(without_password(text))))


def _shortened(text: str) -> str:
    left_out = len(text) - _MOST_SHOWN
    # A shortened text stays as it is: errors are made anew when they are unpickled.
    if left_out <= _SPARE:
        return text
    return text[:_MOST_BEGIN] + _LEFT_OUT.format(left_out) + text[_MOST_BEGIN - _MOST_SHOWN :]


def without_password(text: str) -> str:
    """The text without the names and passwords before the hosts of locations that have a password."""
    return _USER.sub(_unless_password, text) if "@" in text else text


def without_user(uri: str) -> str:
    """The location without any name or password before its host."""
    return _USER.sub("", uri)


def has_password(uri: str) -> bool:
    """Whether a location has a password before its host."""
    return without_password(uri) != uri


def hide_user_of(uri: str, text: str) -> str:
    """A text without the names and passwords that a location has before its hosts, wherever they stand.

    Args:
        uri: the location; where it has no password, the text is given back as it is.
        text: what a client of the store says, in which the location may be in parts.
    """
    for user in _USER.findall(uri):
        if ":" in user:
            password = user[:-1].partition(":")[2]
            text = text.replace(user, "").replace(password, "***") if password else text
    return text


def _unless_password(user: re.Match[str]) -> str:
    # A container of Azure stands before an @ as well.
    return "" if ":" in user[0] else user[0]


class _Escapes(dict[int, str]):
    """The replacement of each character in a printable text, as far as it was looked up.

    A table may have a text of many megabytes, and a piece for each of its characters would take sixty times
    as much.
    """

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if not sign.isprintable():
            sign = sign.encode("unicode_escape", "surrogatepass").decode("ascii")
        self[code] = sign
        return sign
