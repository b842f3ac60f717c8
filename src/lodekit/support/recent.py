"""A cache of the last results of a computation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class RecentResults(dict[Hashable, Any]):
    """The last results of a computation by key, least recently used first; empty in copies and in saved objects.

    Results are never None.

    limit: The number of results that are kept.
    """

    def __init__(self, limit: int = 1) -> None:
        super().__init__()
        self.limit = limit

    def __reduce__(self) -> tuple[type[RecentResults], tuple[int]]:
        return RecentResults, (self.limit,)

    def find(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of a key; it is computed, after others are dropped, if it is not known."""
        result: T | None = self.pop(key, None)
        if result is None:
            while len(self) >= self.limit:
                del self[next(iter(self))]
            result = compute()
        self[key] = result
        return result
