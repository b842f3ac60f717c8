"""Blocks that are alike, in chunks that are worked on together.

All blocks of a pattern share their matrices. In a chunk all patterns occur equally often, so that values of their
blocks are columns of arrays; the matrices of a family of chunks are made together. Blocks that occur too seldom to
share anything are filtered each by itself, some hundred at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunk", "Family", "chunk_up", "put_in_families"]

Numbers = NDArray[np.intp]
#: Blocks that are no more often than this share nothing, and are worked on by themselves.
_RARE = 3
#: Numbers that matrices of blocks which are worked on together may have, and how many blocks that share nothing.
_TOGETHER, _AT_ONCE = 2_000_000, 1000


@dataclass(frozen=True)
class Chunk:
    """Different blocks that are worked on together; each occurs equally often.

    Parameters
    ----------
    patterns : array of int, shape (u,)
        The numbers of the patterns.
    blocks : array of int, shape (u, k)
        The blocks of each pattern.
    """

    patterns: Numbers
    blocks: Numbers

    def is_rare(self, few: float) -> bool:
        """Return whether its blocks occur so seldom that they share nothing, and are more than a few."""
        return bool(self.blocks.shape[1] <= _RARE and self.blocks.size > few)

    @property
    def alone(self) -> Chunk:
        """The same blocks, each by itself."""
        return Chunk(np.repeat(self.patterns, self.blocks.shape[1]), self.blocks.reshape(-1, 1))


@dataclass(frozen=True)
class Family:
    """Chunks whose matrices are made together, however often their blocks occur; one that is filtered is by itself.

    Parameters
    ----------
    chunks : tuple of Chunk
    is_alone : bool
        Whether its blocks share nothing, so that each is filtered by itself.
    """

    chunks: tuple[Chunk, ...]
    is_alone: bool = False

    @cached_property
    def patterns(self) -> Numbers:
        """The patterns of all chunks."""
        return np.concatenate([chunk.patterns for chunk in self.chunks])

    @cached_property
    def first(self) -> Numbers:
        """A block of each pattern."""
        return np.concatenate([chunk.blocks[:, 0] for chunk in self.chunks])

    @property
    def places(self) -> list[slice]:
        """Where the patterns of each chunk stand among those of all."""
        edges = np.cumsum([0, *(len(chunk.patterns) for chunk in self.chunks)]).tolist()
        return [slice(start, stop) for start, stop in pairwise(edges)]


def chunk_up(patterns: Numbers, places: int, width: int, *, alone: bool) -> tuple[Chunk, ...]:
    """Return patterns in chunks, of which all occur equally often, as many as may be worked on together.

    Parameters
    ----------
    patterns : array of int, shape (b,)
        That of each block.
    places, width : int
        How many places a block has, and measurements at each.
    alone : bool
        Whether blocks that share nothing are filtered each by itself.
    """
    most = _most(places, width)
    rare = _AT_ONCE if alone else most
    counts = np.bincount(patterns)
    order = np.argsort(patterns, kind="stable")
    members = np.split(order, np.cumsum(counts)[:-1])
    found = []
    for often in np.unique(counts):
        own = np.flatnonzero(counts == often)
        step = most if often > _RARE else max(1, rare // int(often))
        # All about as large: the last one would cost as much if it were small.
        step = -(-len(own) // max(1, round(len(own) / step)))
        for start in range(0, len(own), step):
            part = own[start : start + step]
            found.append(Chunk(part, np.stack([members[number] for number in part]).astype(np.intp)))
    return tuple(found)


def put_in_families(chunks: Sequence[Chunk], places: int, width: int, few: float) -> tuple[Family, ...]:
    """Return chunks in families: those that are filtered by themselves, then others, as many as may be together.

    Parameters
    ----------
    chunks : sequence of Chunk
    places, width : int
        As in `chunk_up`.
    few : float
        So few blocks are not filtered, whatever they share.
    """
    by_themselves = [Family((chunk,), is_alone=True) for chunk in chunks if chunk.is_rare(few)]
    most, count = _most(places, width), 0
    shared: list[list[Chunk]] = []
    for chunk in (chunk for chunk in chunks if not chunk.is_rare(few)):
        count += len(chunk.patterns)
        if not shared or count > most:
            shared.append([chunk])
            count = len(chunk.patterns)
        else:
            shared[-1].append(chunk)
    return (*by_themselves, *(Family(tuple(own)) for own in shared))


def _most(places: int, width: int) -> int:
    """Return how many patterns may be worked on together."""
    size = places * width
    return max(1, _TOGETHER // max(1, 3 * size * size + 8 * size * places))
