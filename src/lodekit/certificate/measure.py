"""How well curves satisfy the equations, seen from outside: from the values that users get, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.certificate.pieces import Pieces, make_pieces
from lodekit.certificate.written import WrittenEquations
from lodekit.errors import LodekitError

__all__ = ["Measured", "join_measured", "measure_curve", "measure_derivatives", "measure_draws"]

Array = NDArray[np.float64]
#: How often the length of pieces is halved at most.
_HALVINGS = 14
#: A length whose result is uncertain by so many times the best one ends the search.
_WORSE = 1e3
#: The smallest distance of nodes on a piece, in units of its length; floats must show it clearly.
_CLOSEST = 1e-3
#: So that no question to a model is absurdly long.
_MOST_NODES = 200_000


@dataclass(frozen=True)
class Measured:
    """What curves leave of the equations, relative to the largest sum of the sizes of the terms of each equation.

    Parameters
    ----------
    times : array, shape (n,)
        Where the equations were looked at.
    left : array, shape (n, e)
        The largest relative residual of all curves, at each time, in each equation.
    apart : array, shape (n, e)
        How far two ways to differentiate lie apart: by so much the residual can be wrong.
    length : float
        Of the pieces on which derivatives were taken.
    """

    times: Array
    left: Array
    apart: Array
    length: float

    @property
    def equations(self) -> Array:
        """The largest relative residual of each equation, shape (e,)."""
        return np.asarray(np.max(self.left, axis=0, initial=0.0))

    @property
    def uncertainties(self) -> Array:
        """By how much each of `equations` can be wrong, shape (e,)."""
        return np.asarray(np.max(self.apart, axis=0, initial=0.0))

    @property
    def residual(self) -> float:
        """The largest relative residual of all equations."""
        return float(np.max(self.left, initial=0.0))

    @property
    def uncertainty(self) -> float:
        """By how much `residual` can be wrong."""
        return float(np.max(self.apart, initial=0.0))


def join_measured(parts: Sequence[Measured]) -> Measured:
    """Return what several curves leave of the same equations, each at times of its own, as one.

    Parameters
    ----------
    parts : sequence of Measured
    """
    times = np.concatenate([part.times for part in parts])
    left, apart = np.concatenate([part.left for part in parts]), np.concatenate([part.apart for part in parts])
    return Measured(times, left, apart, min(part.length for part in parts))


def measure_curve(
    written: WrittenEquations, curve: Callable[[Array], Array], times: Array, longest: float, breaks: Array
) -> Measured:
    """Return what a curve leaves of the equations at some times.

    Pieces become shorter until the two ways to differentiate agree best; which length that is, their difference alone
    decides, never the residual.

    Parameters
    ----------
    written : WrittenEquations
    curve : function
        From times to the channels, shape (n, channels).
    times : array, shape (n,)
        Where the equations are looked at.
    longest : float
        The length of the longest piece.
    breaks : array
        Times at which the curve is less smooth than elsewhere.
    """
    best: Measured | None = None
    problem: LodekitError | None = None
    known: _Known | None = None
    for pieces, length in _halved(times, longest, breaks):
        try:
            known = _Known.of(pieces, curve, known)
            found = _measure([written], pieces, known.values[None], length)
        except LodekitError as raised:
            # A long piece reaches far beyond the times; there the curve may not be finite.
            problem = raised
            continue
        if best is None or found.uncertainty < best.uncertainty:
            best = found
        elif found.uncertainty > _WORSE * best.uncertainty:
            break
    if best is None:
        raise problem or LodekitError(
            "expected times that floats can tell apart; subtract their origin, such as that of dates in seconds"
        )
    return best


@dataclass(frozen=True)
class _Known:
    """The values of a curve at the nodes of pieces, shape (nodes, channels)."""

    pieces: Pieces
    values: Array

    @classmethod
    def of(cls, pieces: Pieces, curve: Callable[[Array], Array], before: _Known | None) -> _Known:
        """Return values on pieces; those that were there before, as where breaks are close, are not asked for again."""
        if before is None:
            return cls(pieces, curve(pieces.nodes))
        place = np.minimum(np.searchsorted(before.pieces.low, pieces.low), len(before.pieces.low) - 1)
        is_new = (before.pieces.low[place] != pieces.low) | (before.pieces.high[place] != pieces.high)
        new = replace(pieces, low=pieces.low[is_new], high=pieces.high[is_new])
        asked = curve(new.nodes) if is_new.any() else before.values[:0]
        found = []
        for own, old in zip(new.split(asked), before.pieces.split(before.values), strict=True):
            part = old[place]
            part[is_new] = own
            found.append(part.reshape(-1, part.shape[-1]))
        return cls(pieces, np.concatenate(found))


def measure_draws(
    draw: Callable[[Array], tuple[Array, Sequence[WrittenEquations]]],
    times: Array,
    lengths: Sequence[float],
    breaks: Array,
) -> Measured:
    """Return what drawn functions leave of the equations; one call gives all values, as another would draw others.

    Parameters
    ----------
    draw : function
        From times to the channels of s functions, shape (s, n, channels), and the equations of each; called once.
    times : array, shape (n,)
    lengths : sequence of float
        Of pieces; the one on which the two ways to differentiate agree best is taken.
    breaks : array
        As for curves.
    """
    choices = [make_pieces(times, length, breaks) for length in lengths]
    nodes = [pieces.nodes for pieces in choices]
    drawn, written = draw(np.concatenate(nodes))
    values = np.split(drawn, np.cumsum([len(part) for part in nodes])[:-1], axis=1)
    found = [_measure(written, *item) for item in zip(choices, values, lengths, strict=True)]
    return min(found, key=lambda item: item.uncertainty)


def measure_derivatives(written: Sequence[WrittenEquations], times: Array, curves: Array) -> Measured:
    """Return what functions leave of the equations whose derivatives are known, and are not made from their values.

    Parameters
    ----------
    written : sequence of WrittenEquations
        Those of each function.
    times : array, shape (n,)
    curves : array, shape (order + 1, s, n, channels)
        The channels of s functions and their derivatives; NaN where there is none.
    """
    both = [each.apply(times, curves[:, i : i + 1]) for i, each in enumerate(written)]
    left, sizes = (np.concatenate([part[k] for part in both], axis=1) for k in (0, 1))
    scale = np.max(sizes, axis=(1, 2))
    found = np.max(np.abs(left), axis=1).T / np.where(scale > 0, scale, 1.0)
    if not np.isfinite(found).all():
        raise LodekitError("derivatives in the equations are no functions of time, or too large for floats")
    return Measured(times, found, np.zeros_like(found), 0.0)


def _halved(times: Array, longest: float, breaks: Array) -> Iterator[tuple[Pieces, float]]:
    for number in range(_HALVINGS + 1):
        length = longest / 2.0**number
        pieces = make_pieces(times, length, breaks)
        crowded = _CLOSEST * length < np.finfo(float).eps * np.abs(pieces.high).max()
        if crowded or (number and len(pieces.nodes) > _MOST_NODES):
            return
        yield pieces, length


def _measure(written: Sequence[WrittenEquations], pieces: Pieces, values: Array, length: float) -> Measured:
    """Return what is left over of the equations of each curve on pieces, from its values at their nodes.

    Values have shape (s, nodes, channels); there are s sets of equations.
    """
    # All terms may vanish at one time; what they are measured by are the largest ones nearby.
    wide = pieces.with_probes()
    both = [
        [each.apply(wide.times, part[:, i : i + 1]) for i, each in enumerate(written)]
        for part in wide.derivatives(values, written[0].order)
    ]
    rough, fine = (np.concatenate([left for left, _ in found], axis=1) for found in both)
    sizes = np.concatenate([size for _, size in both[1]], axis=1)
    scale = np.max(sizes, axis=(1, 2))
    scale = np.where(scale > 0, scale, 1.0)
    count = len(pieces.times)
    left, apart = (np.max(np.abs(part[..., :count]), axis=1).T / scale for part in (fine, fine - rough))
    if not (np.isfinite(left).all() and np.isfinite(apart).all()):
        raise LodekitError("the curves are too large for floating-point numbers there; look at a shorter stretch")
    return Measured(pieces.times, left, apart, length)
