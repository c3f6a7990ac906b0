"""`lazy_property`: an attribute that is computed once, at its first use.

It is like `functools.cached_property`. But up to Python 3.11 that has one lock for all instances of a
class, so that only one of them is computed at a time. In the engine several threads often read from a store
at the same time. So here each instance has its own lock.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy_property"]

_Value = TypeVar("_Value")


class lazy_property(Generic[_Value]):  # noqa: N801 - a decorator, as `property` is
    """Turn a method without arguments into an attribute that is computed at its first use.

    If several threads use it at the same time, one of them computes it, and the others wait. After an error
    it is computed again at the next use. The class must not have ``__slots__``.

    Args:
        compute: the method.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...

    def __get__(
        self, instance: object | None, owner: type | None = None
    ) -> lazy_property[_Value] | _Value:
        if instance is None:
            return self
        known, lock = instance.__dict__, f"_lock of {self._name}"
        try:
            with known.setdefault(lock, RLock()):
                if self._name not in known:
                    known[self._name] = self._compute(instance)
        finally:
            # Later uses find the value in the instance. The lock must go, because it can't be copied or
            # pickled.
            known.pop(lock, None)
        return known[self._name]  # type: ignore[no-any-return]
