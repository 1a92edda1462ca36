"""What a process keeps of a workspace in memory: each module that keeps something has a class for it.

    memory.of(Searches)     the searches that this process keeps, made at the first call

A workspace has one `Memory`. What it holds may be dropped at any time and is found again in the database or the files.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, cast

Held = TypeVar("Held")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memory:
    """Objects by the class that they are of; many threads may ask.

    >>> memory = Memory()
    >>> memory.of(dict) is memory.of(dict)
    True
    """

    def __init__(self) -> None:
        self._held: dict[object, object] = {}
        self._turn = threading.Lock()

    def of(self, kind: Callable[[], Held]) -> Held:
        """The object of this class, made at the first call."""
        with self._turn:
            if kind not in self._held:
                self._held[kind] = kind()
            return cast(Held, self._held[kind])

    def clear(self) -> None:
        """Drop everything, as if the process began anew."""
        self._held.clear()


class Latest(Generic[Key, Value]):
    """Values by key, the last `most` that were put in; many threads may use them.

    >>> latest = Latest[str, int](most=2)
    >>> for k, key in enumerate("abc"):
    ...     latest[key] = k
    >>> latest.get("a"), latest.get("c")
    (None, 2)
    """

    most = 8

    def __init__(self, most: int | None = None) -> None:
        self._most = self.most if most is None else most
        self._found: OrderedDict[Key, Value] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, or None."""
        return self._found.get(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        with self._turn:
            self._found[key] = value
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)

    def made(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value, made where there is none; two threads may both make it."""
        try:
            return self._found[key]
        except KeyError:
            self[key] = value = make()
            return value
