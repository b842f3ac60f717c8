"""Errors whose size changes with time, and bands of predictions that follow it.

A disturbance has one intensity, but doors open by day. Then innovations are too large for hours, and too small for
others, and a band that is right on the whole is too narrow whenever it matters. How large they are now is told by those
before: their mean square follows the last squares by a gain, and goes back to one with time (a GARCH(1,1) process of
Bollerslev 1986, for times at any distance). That is learned from the innovations of a fit, by likelihood, and counts
where it gains more than chance allows. What is left of tails is taken from the errors themselves, as in conformal
prediction: a band that held fewer of the fitted errors than it says is widened to hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.diagnosis.whiteness import typical_step
from lodekit.learning.estimates import NORMAL_95

__all__ = ["AS_SAID", "STEADY", "Spread", "Unsteadiness", "find_spread", "find_unsteadiness"]

Array = NDArray[np.float64]
#: The share of errors that bands have to hold.
_SHARE = 0.95
#: Gains that are tried, and memories, in typical steps.
_GAINS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8])
_MEMORIES = np.geomspace(1.0, 200.0, 12)
#: What following the size must gain, in nats: steady innovations gain as much in one of a hundred records.
_WORTH = 7.0
#: Fewer errors say nothing of their sizes.
_FEW = 50
#: The last ones of so many tell.
_MOST = 20_000
#: Where the size is followed, it is never taken to be less than this share of the mean square.
_LEAST = 0.05


@dataclass(frozen=True)
class Unsteadiness:
    """How the size of innovations follows those before.

    Parameters
    ----------
    gain : float
        What the last square counts; zero where the size does not change.
    memory : float
        After this time a change is forgotten to 1/e, in the user's time.
    level : float
        The mean square of all of them.
    gained : float
        How many nats likelier the innovations are so.
    """

    gain: float = 0.0
    memory: float = 1.0
    level: float = 1.0
    gained: float = 0.0

    def follow(self, times: Array, innovations: Array) -> Array:
        """Return mean squares to be expected after each innovation, one on the whole, shape (n,).

        Parameters
        ----------
        times, innovations : arrays, shape (n,)
            In the order of time.
        """
        if not self.gain:
            return np.ones(len(innovations))
        forgotten = np.exp(-np.diff(times, prepend=times[:1]) / self.memory)
        return _follow(np.array([self.gain]), forgotten[:, None], innovations / np.sqrt(self.level))[1][:, 0]


#: The size of innovations does not change.
STEADY = Unsteadiness()


@dataclass(frozen=True)
class Spread:
    """How large errors of predictions some time ahead are, against what the model says.

    Parameters
    ----------
    carried : float
        Which share of what is known of the size, when the prediction is made, still holds when it comes true.
    widening : float
        By which factor bands are wider besides, one at least.
    """

    carried: float = 0.0
    widening: float = 1.0

    def factors(self, sizes: Array) -> Array:
        """Return factors of deviations.

        Parameters
        ----------
        sizes : array, shape (n,)
            Mean squares of innovations when predictions were made.
        """
        return self.widening * np.sqrt(_expected(self.carried, sizes))


#: Errors are as large as the model says.
AS_SAID = Spread()


def _expected(carried: float, sizes: Array) -> Array:
    """Return mean squares of errors, one on the whole, where a share of what was known of their size still holds."""
    return np.maximum(1.0 + carried * (sizes - 1.0), _LEAST)


def _follow(gains: Array, forgotten: Array, innovations: Array) -> tuple[Array, Array]:
    """Return mean squares before and after each innovation, (n, m), for m ways to follow them."""
    size = np.ones(len(gains))
    before, after = np.empty((2, len(innovations), len(gains)))
    for row, square in enumerate((innovations**2).tolist()):
        size = 1.0 + forgotten[row] * (size - 1.0)
        before[row] = size
        size = size + gains * (square - size)
        after[row] = size
    return np.maximum(before, _LEAST), after


def find_unsteadiness(times: Sequence[Array], innovations: Sequence[Array]) -> Unsteadiness:
    """Return how the size of innovations changes; steady where that is no more than chance.

    Parameters
    ----------
    times, innovations : sequences of arrays, shape (n,)
        Of each record, or run of neighbours, in the order of time.

    Examples
    --------
    >>> import numpy as np
    >>> z, t = np.random.default_rng(0).standard_normal(400), np.arange(400.0)
    >>> find_unsteadiness([t], [z]).gain
    0.0
    >>> find_unsteadiness([t], [z * np.where(t // 50 % 2, 0.4, 1.4)]).gain > 0
    True
    """
    kept = [(own, z) for own, z in zip(times, innovations, strict=True) if len(z)]
    if sum(len(z) for _, z in kept) < _FEW:
        return STEADY
    step = float(np.median([typical_step(own) for own, _ in kept]))
    level = float(np.mean(np.concatenate([z for _, z in kept]) ** 2))
    if not (step > 0.0 and 0.0 < level < np.inf):
        return STEADY
    gains, memories = (each.ravel() for each in np.meshgrid(_GAINS, step * _MEMORIES))
    total = np.zeros(len(gains))
    for own, z in kept:
        last, scaled = own[-_MOST:], z[-_MOST:] / np.sqrt(level)
        forgotten = np.exp(-np.diff(last, prepend=last[:1])[:, None] / memories)
        sizes, squares = _follow(gains, forgotten, scaled)[0], scaled[:, None] ** 2
        total += 0.5 * np.sum(squares - squares / sizes - np.log(sizes), axis=0)
    best = int(np.argmax(total))
    if not total[best] > _WORTH:
        return STEADY
    return Unsteadiness(float(gains[best]), float(memories[best]), level, float(total[best]))


def find_spread(errors: Array, sizes: Array) -> Spread:
    """Return how large errors of a fitted record were, some time ahead.

    Parameters
    ----------
    errors : array, shape (n,)
        Over the deviations that the model has for them.
    sizes : array, shape (n,)
        Mean squares of innovations when predictions were made; one where they do not change.
    """
    finite = np.isfinite(errors)
    errors, sizes = errors[finite], sizes[finite]
    if len(errors) < _FEW:
        return AS_SAID
    carried = 0.0
    if (sizes != 1.0).any():
        shares = np.linspace(0.0, 1.0, 21)
        level = float(np.mean(errors**2))
        heights = [
            -np.sum(np.log(_expected(share, sizes)) + errors**2 / (level * _expected(share, sizes)))
            for share in shares.tolist()
        ]
        carried = float(shares[int(np.argmax(heights))])
    sorted_ = np.sort(np.abs(errors) / np.sqrt(_expected(carried, sizes)))
    place = min(int(np.ceil((len(errors) + 1) * _SHARE)), len(errors)) - 1
    return Spread(carried, max(1.0, float(sorted_[place]) / NORMAL_95))
