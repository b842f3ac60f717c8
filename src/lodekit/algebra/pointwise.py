"""What one random point of a large finite field decides about equations, without any elimination over polynomials.

Full rank at a point proves full rank, and coprime determinants at a point prove that no mode is out of reach: both can
only get lost there. The converse holds up to a chance of about 1e-15, and is checked exactly where it is a promise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import nmod_mat, nmod_poly

from lodekit.algebra.reduction import Vector
from lodekit.algebra.sampling import image, random_points
from lodekit.algebra.scalars import ScalarRing

__all__ = ["Exchanges", "has_no_modes"]


@dataclass(frozen=True)
class Exchanges:
    """Which sets of channels can be chosen freely, at a random point: the rest must be determined by the equations.

    One such set is known, the first in order. In any other one, some channels of it are replaced by as many others, and
    whether they can be is a minor of the matrix that expresses the others by it: small where few are replaced.

    Parameters
    ----------
    ring : ScalarRing
    equations : list of vectors
        Independent.
    width : int
        How many channels there are.
    """

    ring: ScalarRing
    equations: list[Vector]
    width: int

    @cached_property
    def _reduced(self) -> tuple[int, dict[int, int], list[list[int]]]:
        """The prime, the equation that determines each channel which is not free, and all equations solved for them."""
        field, points = next(random_points(self.ring, seed=1))
        # A point in d as well: any number that has nothing to do with the equations.
        d = field.integer(0x9E3779B97F4A7C15)
        values = []
        for row in self.equations:
            for entry in reversed(row):
                total = field.zero
                for value in reversed(image(self.ring, entry, field, points)):
                    total = total * d + value
                values.append(int(total))
        # The last channels come first, so that they are determined, and the first ones free.
        solved, rank = nmod_mat(len(self.equations), self.width, values, field.prime).rref()
        rows = [[int(value) for value in reversed(row)] for row in solved.tolist()[:rank]]
        owners = {max(j for j, value in enumerate(row) if value): i for i, row in enumerate(rows)}
        return field.prime, owners, rows

    @property
    def count(self) -> int:
        """How many channels can be chosen."""
        return self.width - len(self._reduced[1])

    def rank(self, chosen: int) -> int:
        """Return how many of some channels can be chosen at once.

        Parameters
        ----------
        chosen : int
            The channels as bits: the lowest is the first channel.
        """
        prime, owners, rows = self._reduced
        mine = [owners[j] for j in owners if chosen >> j & 1]
        missing = [j for j in range(self.width) if j not in owners and not chosen >> j & 1]
        kept = self.count - len(missing)
        if not mine or not missing:
            return kept
        return kept + int(nmod_mat(len(mine), len(missing), [rows[i][j] for i in mine for j in missing], prime).rank())

    def sets(self, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return the largest sets of channels that can be chosen, in order, at most `limit` of them.

        Examples
        --------
        >>> ring = ScalarRing()
        >>> Exchanges(ring, [[[ring.zero, ring.one], [-ring.one], []]], 3).sets(10)
        ((0, 2), (1, 2))
        """
        found: list[tuple[int, ...]] = []
        size, whole = self.count, (1 << self.width) - 1
        # Depth first, without recursion: there may be more channels than Python has levels.
        stack = [(0, 0, 0)]
        while stack and len(found) < limit:
            chosen, count, start = stack.pop()
            if count == size:
                found.append(tuple(j for j in range(self.width) if chosen >> j & 1))
                continue
            # Without this channel the set must still be completed by later ones; otherwise no later one will do either.
            later = chosen | (whole >> (start + 1) << (start + 1))
            if start + 1 < self.width and self.rank(later) == size:
                stack.append((chosen, count, start + 1))
            if self.rank(chosen | 1 << start) == count + 1:
                stack.append((chosen | 1 << start, count + 1, start + 1))
        return tuple(found)


def has_no_modes(ring: ScalarRing, equations: Sequence[Vector], width: int) -> bool:
    """Return whether a point proves that the equations leave no mode; no proof was found where it is False.

    The determinants of the equations times random matrices are combinations of the maximal minors: where two of them
    have no common zero, the minors have none.

    Parameters
    ----------
    ring : ScalarRing
    equations : sequence of vectors
        Independent.
    width : int
        How many channels there are.
    """
    rank = len(equations)
    if not rank:
        return True
    field, points = next(random_points(ring))
    prime, generator = field.prime, random.Random(rank)
    rows = [[image(ring, entry, field, points) for entry in row] for row in equations]
    most = max(len(entry) for row in rows for entry in row)
    powers = [
        nmod_mat(rank, width, [int(e[k]) if k < len(e) else 0 for row in rows for e in row], prime) for k in range(most)
    ]
    degree = sum(max(len(entry) for entry in row) - 1 for row in rows)
    found = nmod_poly([0], prime)
    for _ in range(2):
        mixed = nmod_mat(width, rank, [generator.getrandbits(60) for _ in range(width * rank)], prime)
        square = [power * mixed for power in powers]
        values = []
        for point in range(degree + 1):
            total = square[-1]
            for power in reversed(square[:-1]):
                total = total * point + power
            values.append(int(total.det()))
        found = found.gcd(_interpolate(values, prime))
    return bool(found.degree() == 0)


def _interpolate(values: Sequence[int], prime: int) -> nmod_poly:
    """Return the polynomial with these values at 0, 1, 2, ...: Newton's differences."""
    differences = list(values)
    for order in range(1, len(values)):
        inverse = pow(order, -1, prime)
        for k in range(len(values) - 1, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) * inverse % prime
    total = nmod_poly([0], prime)
    for k in range(len(values) - 1, -1, -1):
        total = total * nmod_poly([-k % prime, 1], prime) + differences[k]
    return total
