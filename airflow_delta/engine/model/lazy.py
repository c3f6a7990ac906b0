"""`lazy_property`: computed when asked for, once, and kept.

Like `functools.cached_property`, whose lock up to Python 3.11 belongs to the class: of all instances only
one is computed at a time, whatever the number of threads. What is computed in the engine is often read from
a store behind a network, by several threads from as many files. So here the lock belongs to the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy_property"]

_Value = TypeVar("_Value")


class lazy_property(Generic[_Value]):  # noqa: N801 - a decorator, as `property` is
    """Turn a method without arguments into an attribute that is computed when first asked for.

    Threads that ask one instance at the same time wait for the first of them. What raises an error is
    computed anew the next time. The class must not have ``__slots__``.

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
            # Whoever comes later finds the value before this method; and a lock can't be copied or pickled.
            known.pop(lock, None)
        return known[self._name]  # type: ignore[no-any-return]
