"""Who watches what a table makes the process do: an audit hook, and a directory that nobody may touch.

The audit hook sees what Python does: files, links, sockets, programs. C++ and Rust don't pass it, so the
directory beside the table is watched by the kernel (inotify) as well, and compared afterwards by inodes,
sizes and times. Who speaks to a host is seen by `listener`.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.attacks.fuzz.files import fingerprint, lay_out
from tests.attacks.fuzz.tables import canary

__all__ = ["Canary", "watched"]

_OPENING = {"open", "os.listdir", "os.scandir", "os.chdir", "os.walk"}
_CHANGING = {
    "os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod",
    "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod",
    "shutil.rmtree", "shutil.move",
    "shutil.copyfile", "sqlite3.connect", "glob.glob", "tempfile.mkstemp", "tempfile.mkdtemp",
}  # fmt: skip
_NEVER = (
    "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto",
    "socket.bind", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
    "os.fork", "os.kill",
    "os.startfile", "pty.spawn", "ftplib.connect", "http.client.connect", "urllib.Request",
    "smtplib.connect",
    "pickle.find_class", "webbrowser.open", "os.putenv", "ctypes.dlopen",
)  # fmt: skip

_LIBRARIES = tuple(
    {
        os.path.realpath(path) + "/"
        for path in (sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path))
    }
)
# What the interpreter and the libraries look at by themselves. Not `/proc/self/environ`.
_HARMLESS = ("/usr/lib/", "/usr/share/zoneinfo/", "/lib/", "/etc/localtime", "/dev/null", "/dev/urandom",
             "/proc/self/maps", "/proc/self/status", "/proc/self/fd", "/proc/cpuinfo", "/proc/meminfo",
             "/sys/fs/cgroup/", "/sys/devices/system/cpu/", "/proc/self/cgroup", "/proc/stat")  # fmt: skip


class _State:
    """What the one hook of a process looks at; hooks can't be taken away again."""

    allowed: tuple[str, ...] = ()
    found: list[str] | None = None
    busy = threading.local()


def _hook(event: str, args: tuple[object, ...]) -> None:
    found = _State.found
    if found is None or getattr(_State.busy, "now", False):
        return
    if event in _NEVER:
        if event in ("socket.connect", "socket.bind", "socket.sendto") and _is_harmless(args):
            return
        found.append(f"{event}{args!r}"[:300])
    elif event in _OPENING or event in _CHANGING:
        _State.busy.now = True
        try:
            for argument in args[:2] if event in _CHANGING else args[:1]:
                if isinstance(argument, str | bytes) and not _is_allowed(
                    os.fsdecode(argument), event
                ):
                    found.append(f"{event} {os.fsdecode(argument)[:200]!r}")
        finally:
            _State.busy.now = False


def _is_harmless(args: tuple[object, ...]) -> bool:
    return False


def _is_allowed(path: str, event: str) -> bool:
    if not path.startswith("/"):
        # Relative to a descriptor, whose own opening was seen: a name, or a path that stays below.
        return event != "os.chdir" and ".." not in path.split("/")
    if event in _CHANGING and event not in ("os.utime", "shutil.copyfile"):
        # These act on a name, not on what it links to.
        parent, _, name = path.rstrip("/").rpartition("/")
        real = os.path.realpath(parent or "/") + "/" + name
    else:
        real = os.path.realpath(path)
    if real.startswith(_State.allowed) or f"{real}/" in _State.allowed:
        return True
    return event in _OPENING and (
        real.startswith(_HARMLESS)
        or f"{real}/".startswith(_LIBRARIES)
        or real.endswith((".py", ".pyc", ".so"))
        or (real.startswith(f"/proc/{os.getpid()}/") and real.endswith(("/maps", "/status", "/fd")))
    )


def install() -> None:
    """Put the hook in place, for as long as the process lives."""
    sys.addaudithook(_hook)


@contextmanager
def watched(*directories: str) -> Iterator[list[str]]:
    """Collect what happens outside of the directories, and all that speaks to hosts or starts programs."""
    _State.allowed = tuple(f"{os.path.realpath(directory)}/" for directory in directories)
    _State.found = found = []
    try:
        yield found
    finally:
        _State.found = None


_ACCESS, _MODIFY, _ATTRIB, _OPEN, _MOVED, _CREATE, _DELETE = 1, 2, 4, 0x20, 0xC0, 0x100, 0x200
_WANTED = _ACCESS | _MODIFY | _ATTRIB | _OPEN | _MOVED | _CREATE | _DELETE
_HEADER = struct.Struct("iIII")


class Canary:
    """A directory beside the table that nobody may open, read or change."""

    def __init__(self, directory: str) -> None:
        lay_out(canary(), directory)
        self._directory = directory
        self._before = fingerprint(directory)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify isn't there")
        self._names: dict[int, str] = {}
        for current, _, _ in os.walk(directory):
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(current), _WANTED)
            if watch < 0:
                raise OSError(ctypes.get_errno(), "no watch")
            self._names[watch] = current
        self.found()

    def found(self) -> list[str]:
        """What was done to the directory since the last call."""
        events = self._events()
        now = fingerprint(self._directory)
        changed = [
            f"canary changed {path}"
            for path in sorted(now.keys() | self._before.keys())
            if now.get(path) != self._before.get(path)
        ]
        self._before = fingerprint(self._directory) if changed else self._before
        self._events()  # those of the comparison
        return [*events, *changed]

    def _events(self) -> list[str]:
        found = []
        while True:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return sorted(set(found))
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
                at += _HEADER.size + length
                where = f"{self._names.get(watch, '?')}/{os.fsdecode(name)}"
                found.append(f"canary {_said(mask)} {where}")


def _said(mask: int) -> str:
    words = {_ACCESS: "read", _MODIFY: "written", _ATTRIB: "attributes", _OPEN: "opened",
    _CREATE: "created",
             _DELETE: "deleted", 0x40: "moved away", 0x80: "moved here"}  # fmt: skip
    return ", ".join(word for bit, word in words.items() if mask & bit) or hex(mask)
