"""All blocks at some hyperparameters: measurements whitened inside blocks, and the filter between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.between import Border, Carried, Smoothed, carry, inform, look_back, smooth
from lodekit.inference.markov.families import Chunk, Family
from lodekit.inference.markov.layout import Layout
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.stretches import Plan
from lodekit.inference.markov.whitening import Alone, White, apart, roots_of, together, whiten

__all__ = ["Filter", "Projected", "make_filter"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Numbers of blocks that are kept for the way back, of those that share matrices and of others; more are made again.
_KEPT, _KEPT_ALONE = 4_000_000, 50_000_000


@dataclass(frozen=True)
class Filter:
    """All blocks at some hyperparameters, without the values of measurements.

    Parameters
    ----------
    space : Space
    layout : Layout
    variance : array, shape (m,)
        Of the noise of each measurement.
    told, moved, noise : arrays, shapes (u, s, s)
        As in `White`, of all patterns.
    half_logs : array, shape (u,)
    carried : Carried
    kept : dict of int to White
        Families that were kept, where they are few.
    alone : dict of int to Alone
        Families of blocks that share nothing, if they were kept.
    basis : array, shape (u, m, s), optional
        The basis of the design of each pattern. Where designs do not tell some states apart, rounding decides about it,
        and all that is said in a basis has to be said in the same one.
    border : Border
        What is said at both ends.
    """

    space: Space
    layout: Layout
    variance: Array
    told: Array
    moved: Array
    noise: Array
    half_logs: Array
    carried: Carried
    kept: dict[int, White]
    alone: dict[int, Alone]
    basis: Array | None = None
    border: Border = field(default_factory=Border)

    def smooth(self, projected: Projected, border: Border | None = None) -> Smoothed:
        """Return means through all blocks and back, for what values say.

        Parameters
        ----------
        projected : Projected
        border : Border, optional
            What is said at both ends; that of the filter where nobody says.
        """
        own = self.carried, self.layout.patterns, self.told, self.moved
        return smooth(*own, projected.said, projected.added, border or self.border)

    def inform(self) -> Array:
        """Return what all later data know of the state at the start of each block, shape (b + 1, s, s)."""
        return inform(self.carried, self.layout.patterns, self.told, self.border)

    def look_back(self) -> Array:
        """Return roots of what each block and all after it say of the state at its start, shape (b + 1, s, s)."""
        return look_back(self.layout.patterns, self.told, self.moved, self.noise, self.border)

    def white(self, number: int) -> White:
        """Return the whitened blocks of a family."""
        return self.kept.get(number) or self.make(self.layout.plan_of(number))

    def make(self, plan: Plan) -> White:
        """Return any blocks, whitened."""
        found, patterns = whiten(self.space, self.layout, plan, self.variance), self.layout.patterns[plan.blocks]
        if self.basis is None:
            return found
        return replace(found, basis=self.basis[patterns], told=self.told[patterns])

    def project(self, values: Array) -> Projected:
        """Return what values of all measurements say of states.

        Parameters
        ----------
        values : array, shape (b, m, k)
            In blocks.
        """
        found = Projected.empty(values, self.space.size)
        for number, family in enumerate(self.layout.families):
            found.add_family(family, self.white(number), values)
        return found


@dataclass
class Projected:
    """What values of all measurements say of states, in each block and for k sets of values.

    Parameters
    ----------
    said, added : arrays, shape (b, s, k)
        Of the state at the start of a block, and what they add to it until the next one.
    rest : array, shape (b, k)
        What is left of whitened values, squared and summed up.
    doubt, lost : float
        What relative errors of covariances inside blocks do to the log evidence, and those of what is left, squared.
    """

    said: Array
    added: Array
    rest: Array
    doubt: float = 0.0
    lost: float = 0.0

    @classmethod
    def empty(cls, values: Array, size: int) -> Projected:
        """Return zeros.

        Parameters
        ----------
        values : array, shape (b, m, k)
        size : int
            How many states there are.
        """
        blocks, _, count = values.shape
        said, added = np.zeros((2, blocks, size, count))
        return cls(said, added, np.zeros((blocks, count)))

    def add_alone(self, chunk: Chunk, own: Alone) -> None:
        """Add blocks that share nothing.

        Parameters
        ----------
        chunk : Chunk
        own : Alone
            Its blocks.
        """
        blocks = chunk.blocks.ravel()
        self.said[blocks] = own.said
        added = own.swept.added
        self.added[blocks, : added.shape[1]] = added[:, :, None]
        self.rest[blocks] = own.rest
        self.lost += own.lost
        self.doubt += own.swept.doubt

    def add_family(self, family: Family, white: White, values: Array) -> None:
        """Add the blocks of a family.

        Parameters
        ----------
        family : Family
        white : White
            Its patterns.
        values : array, shape (b, m, k)
            Of all blocks.
        """
        for chunk, where in zip(family.chunks, family.places, strict=True):
            self.add(chunk, white.part(where), values)

    def add(self, chunk: Chunk, white: White, values: Array) -> None:
        """Add the blocks of a chunk.

        Parameters
        ----------
        chunk : Chunk
        white : White
            Its patterns.
        values : array, shape (b, m, k)
            Of all blocks.
        """
        z = white.inverse @ together(values, chunk)
        own, left = white.project(z)
        self.said[chunk.blocks] = apart(own, chunk)
        self.added[chunk.blocks, : white.gain.shape[1]] = apart(white.gain @ z, chunk)
        self.rest[chunk.blocks] = apart(np.sum(left**2, axis=1, keepdims=True), chunk)[:, :, 0]
        self.lost += float(np.sum((left[:, : z.shape[1]] * z) ** 2))
        # Entries of a covariance err in proportion to the variances.
        alpha = white.inverse.swapaxes(-1, -2) @ left[:, : z.shape[1]]
        inverse = chunk.blocks.shape[1] * np.sum(white.inverse**2, axis=1)
        self.doubt += 0.5 * float(np.sum(white.variances * (np.sum(alpha**2, axis=2) + inverse)))


def make_filter(
    space: Space,
    layout: Layout,
    variance: Array,
    values: Array,
    *,
    keep: bool = False,
    looking: bool = False,
    border: Border | None = None,
) -> tuple[Filter, Projected] | None:
    """Return the filter through all blocks, and what values say; None where something is not finite or not positive.

    Parameters
    ----------
    space : Space
    layout : Layout
    variance : array, shape (m,)
        Of the noise of each measurement.
    values : array, shape (b, m, k)
        Of all measurements, in blocks; k is one where some blocks share nothing, which are filtered inside, too.
    keep : bool
        Whether these are needed again.
    looking : bool
        Whether states inside blocks will be asked for.
    border : Border, optional
        What is said at both ends.
    """
    if not (space.is_finite and np.isfinite(variance).all() and (variance > 0).all()):
        return None
    border = border or Border()
    start = space.root_at(float(layout.times[0, 0])) if border.root is None else border.root
    if not np.isfinite(start).all():
        return None
    parts, projected = _Patterns.empty(space, layout, looking=looking), Projected.empty(values, space.size)
    kept, used, alone, room = {}, 0, {}, _KEPT_ALONE if keep else 0
    for number, family in enumerate(layout.families):
        try:
            if family.is_alone:
                chunk = family.chunks[0]
                own = Alone.of(space, layout, number, variance, values)
                parts.put_alone(chunk, own)
                projected.add_alone(chunk, own)
                if (room := room - own.count) >= 0:
                    alone[number] = own
                continue
            white = whiten(space, layout, layout.plan_of(number), variance)
        except np.linalg.LinAlgError:
            return None
        parts.put(family.patterns, white)
        projected.add_family(family, white, values)
        if (used := used + 3 * white.inverse.size) <= _KEPT:
            kept[number] = white
    if not parts.is_finite:
        return None
    carried = carry(start, layout.patterns, parts.told, parts.moved, parts.noise)
    known = space, layout, variance, parts.told, parts.moved, parts.noise, parts.half_logs
    return Filter(*known, carried, kept, alone, parts.basis, border), projected


@dataclass(frozen=True)
class _Patterns:
    """What each of u patterns says of the state at its start, and how it moves it, as `Filter` has it."""

    told: Array
    moved: Array
    noise: Array
    half_logs: Array
    basis: Array | None

    @classmethod
    def empty(cls, space: Space, layout: Layout, *, looking: bool) -> _Patterns:
        count, size = int(layout.patterns.max()) + 1, space.size
        length = max(layout.places * layout.observed.shape[2], size + 1)
        basis = np.zeros((count, length, size)) if looking else None
        told, moved, noise = np.zeros((3, count, size, size))
        return cls(told, moved, noise, np.zeros(count), basis)

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(part).all()) for part in (self.told, self.moved, self.noise, self.half_logs))

    def put(self, own: Numbers, white: White) -> None:
        self.told[own], self.moved[own], self.noise[own] = white.told, white.moved, white.noise
        self.half_logs[own] = white.half_log
        if self.basis is not None:
            self.basis[own] = white.basis

    def put_alone(self, chunk: Chunk, alone: Alone) -> None:
        own, noisy = chunk.alone.patterns, alone.swept.noise.shape[-1]
        self.told[own], self.moved[own] = alone.told, alone.swept.transition
        self.noise[own, :noisy, :noisy] = roots_of(alone.swept.noise)
        self.half_logs[own] = alone.swept.half_log
        if self.basis is not None:
            self.basis[own] = alone.basis
