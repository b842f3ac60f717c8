"""Start values from the weak form of the equations: no derivative falls on the data.

Each equation is multiplied by smooth bumps ``(1 - s^2)^p`` of compact support and integrated by parts until all
derivatives stand at the bump. What remains are integrals of the data, in which noise averages out. A residual counts
relative to what the noise of all data would make of it: so an equation may be multiplied by anything, and large
parameters that cancel each other gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy.optimize import least_squares

from lodekit.data.measurements import scatter_of
from lodekit.data.observations import Series
from lodekit.learning.guesses.implied import ImpliedEquations
from lodekit.learning.transforms import Layout

__all__ = ["Integrals", "bump_integrals", "step_integrals", "weak_guesses"]

Array = NDArray[np.float64]
#: What values contribute to integrals: by their times, whether they are held, the order of the derivative, half width.
Integrals = dict[tuple[bytes, bool, int, float], Array]
#: Half widths of windows, as shares of the record, and how many windows there are of each.
_HALVES, _WINDOWS = (0.25, 0.12, 0.06, 0.03, 0.015, 0.007), 80
#: A window holds so many measurements at least, and so many are taken of a series at most.
_INSIDE, _MOST = 8, 1500
#: Noise is taken to be no smaller than this share of the spread: interpolation is no better.
_FLOOR = 1e-3
#: Steps of a least-squares search, from a guess and from what another window has found.
_STEPS, _FEWER = 40, 12
#: Parameters may go this far from the size to expect, as logarithms; farther away each unit costs so much.
_LOOSE, _LEASH = 7.0, 1.0
#: How many blind guesses start it, until two lead to the same cost, up to this share.
_TRIES, _SAME = 3, 1e-3
#: A mean square of residuals, relative to their noise, that says that something went wrong.
_POOR = 5.0
#: Known right-hand sides are looked at so often.
_GRID = 120


def weak_guesses(
    equations: Sequence[ImpliedEquations],
    layout: Layout,
    generator: np.random.Generator,
    halves: Sequence[float] = _HALVES,
    *,
    near: Array | None = None,
    integrals: Sequence[Integrals] | None = None,
) -> list[Array]:
    """Return values of the parameters, each of shape (p,), NaN where they do not occur, best first.

    Parameters
    ----------
    equations : sequence of ImpliedEquations
        Between what was measured in each record.
    layout : Layout
        Which parameters are learned, and on which scale.
    generator : numpy.random.Generator
        For the points that least-squares searches start from.
    halves : sequence of float
        Half widths of windows, as shares of the record.
    near : array, shape (p,), optional
        Values that the search starts from, where some are known; several are guessed otherwise.
    integrals : sequence of dict, optional
        Those of each record that were made before, and can be used again; they grow.
    """
    involved = sorted({number for each in equations for number in each.involved})
    tried = [] if near is None else [near]
    for attempt in range(_TRIES if near is None else 0):
        tried.append(np.zeros(len(layout.names)))
        for number in involved:
            tried[-1][number] = layout.guess(number, attempt, generator)
    starts = [np.array([layout.transforms[n].inverse(float(each[n])) for n in involved]) for each in tried]
    known = integrals or [{} for _ in equations]
    records = [(each, _thin_all(each), own) for each, own in zip(equations, known, strict=True)]
    found: list[_Guess] = []
    for half in halves:
        forms = [_WeakForm.of(each, series, half, own) for each, series, own in records]
        form = _WeakForms([each for each in forms if each is not None], involved)
        if form.count < len(involved):
            continue
        # What another width has found is as good a start as any, and needs fewer steps.
        tries = [(guess.x, _FEWER) for guess in found[-1:]] + [(x, _STEPS) for x in starts[: 1 if found else _TRIES]]
        guesses: list[_Guess] = []
        for x0, steps in tries:
            guess = _minimise(form, layout, x0, steps)
            guesses = sorted([*guesses, *([] if guess is None else [guess])], key=lambda guess: guess.cost)
            if len(guesses) > 1 and guesses[1].cost < (1.0 + _SAME) * guesses[0].cost:
                break
        found += guesses[:1]
    # Wide windows leave little over because they see little: what counts is how well the parameters are told.
    found.sort(key=lambda guess: (guess.cost > _POOR, guess.error))
    return [layout.parameters(guess.x, involved) for guess in found]


@dataclass(frozen=True)
class _Guess:
    """What least squares have found for one width of windows.

    Parameters
    ----------
    x : array, shape (parameters,)
        On the scale of the search.
    cost : float
        The mean square of residuals relative to their noise; about one or less where all is well.
    error : float
        The largest formal error of a parameter, on the same scale.
    """

    x: Array
    cost: float
    error: float


def _minimise(form: _WeakForms, layout: Layout, x0: Array, steps: int) -> _Guess | None:
    """Return where a least-squares search ends; None where nothing is finite."""
    involved = form.involved
    last: dict[bytes, tuple[Array, Array]] = {}

    def evaluate(x: Array) -> tuple[Array, Array]:
        key = x.tobytes()
        if key not in last:
            last.clear()
            slopes = np.array([layout.transforms[n].slope(float(x[i])) for i, n in enumerate(involved)])
            residual, jacobian = form.evaluate(layout.parameters(x, involved, 1.0), slopes)
            far, side = _far(involved, layout, x)
            last[key] = np.append(residual, far), np.concatenate([jacobian, np.diag(side)])
        return last[key]

    result = least_squares(
        lambda x: evaluate(x)[0], x0, jac=lambda x: evaluate(x)[1], method="lm", max_nfev=steps, ftol=1e-4, xtol=1e-4
    )
    if not np.isfinite(result.x).all():
        return None
    residual, slope = (part[: form.count] for part in evaluate(result.x))
    # Neighbouring windows overlap and tell much the same; errors serve to compare widths, no more.
    sizes = np.linalg.svd(slope, compute_uv=False)
    cost = float(np.mean(residual**2))
    return _Guess(result.x, cost, float(np.sqrt(max(cost, 1.0)) / max(float(sizes.min()), 1e-300)))


def _far(involved: Sequence[int], layout: Layout, x: Array) -> tuple[Array, Array]:
    """Return how far parameters have run away, as residuals, and the derivatives: wide windows do not hold them back.

    Where a high derivative is too small to be seen, all others may be multiplied by anything.
    """
    transforms = [layout.transforms[n] for n in involved]
    centre = np.array([transform.centre for transform in transforms])
    away = np.array([transform.away(point) for transform, point in zip(transforms, x.tolist(), strict=True)])
    beyond = np.maximum(away - _LOOSE, 0.0)
    return _LEASH * beyond, np.where(beyond > 0, _LEASH * np.sign(x - centre), 0.0)


@dataclass(frozen=True)
class _WeakForm:
    """The integrals of all terms over windows of one width.

    Parameters
    ----------
    equations : ImpliedEquations
    features : array, shape (windows, terms)
        The integral of each term, without its coefficient.
    noise : array, shape (windows, terms, terms)
        The covariance that noise gives to these, within an equation.
    grid, weights : arrays, shapes (n,) and (windows, n)
        Times, and what values there contribute to integrals over the windows.
    """

    equations: ImpliedEquations
    features: Array
    noise: Array
    grid: Array
    weights: Array

    @classmethod
    def of(
        cls, equations: ImpliedEquations, series: Sequence[Series], half: float, known: Integrals
    ) -> _WeakForm | None:
        """Return the integrals over windows of a half width, as a share of the record; None where they hold too little.

        Parameters
        ----------
        equations : ImpliedEquations
        series : sequence of Series
            Its series, thinned.
        half : float
        known : dict
            Integrals that were made before; grows.
        """
        start, stop = equations.window
        width = half * (stop - start)
        centres = np.linspace(start + width, stop - width, _WINDOWS)
        pairs = list(zip(series, equations.kinds, strict=True))
        if any(2.0 * half * len(item.times) < _INSIDE for item, kind in pairs if not kind):
            return None
        power = int(equations.order.max()) + 2
        terms = len(equations.order)
        features, noise = np.zeros((_WINDOWS, terms)), np.zeros((_WINDOWS, terms, terms))
        for j, (item, kind) in enumerate(pairs):
            # What an input does between its samples is known.
            level, key, held = 0.0 if kind else _noise(item), item.times.tobytes(), kind == "hold"
            integrals = step_integrals if held else bump_integrals
            for order in range(equations.highest(j) + 1):
                if (key, held, order, half) not in known:
                    made = (-1.0) ** order * integrals(item.times, centres, width, power, order)
                    known[key, held, order, half] = made
            own = np.flatnonzero(equations.column == j)
            rows = np.stack([known[key, held, int(equations.order[k]), half] for k in own])
            features[:, own] = (rows @ item.values).T
            # Noise of one series correlates all terms in which it occurs.
            noise[:, own[:, None], own] = level**2 * (rows.transpose(1, 0, 2) @ rows.transpose(1, 2, 0))
        grid = np.linspace(start, stop, _GRID)
        return cls(equations, features, noise, grid, bump_integrals(grid, centres, width, power, 0))

    @property
    def count(self) -> int:
        """How many residuals there are."""
        return self.equations.count * len(self.features)

    @cached_property
    def _members(self) -> list[tuple[NDArray[np.intp], Array, Array]]:
        """Which terms belong to each equation, with their integrals and the covariance of these."""
        every = [np.flatnonzero(self.equations.equation == n) for n in range(self.equations.count)]
        return [(own, self.features[:, own], self.noise[:, own[:, None], own]) for own in every]

    def evaluate(self, theta: Array, numbers: list[int], slopes: Array) -> tuple[Array, Array]:
        """Return residuals relative to their noise, (equations * windows,), and derivatives, (..., parameters).

        Parameters
        ----------
        theta : array, shape (p,)
            Values of all parameters.
        numbers : list of int
            In which of them derivatives are wanted.
        slopes : array
            Derivatives of these on the scale of the search.
        """
        with np.errstate(all="ignore"):
            values, gradient = self.equations.coefficients.evaluate(theta)
            gradient = gradient[numbers] * slopes[:, None]
            sides = self.equations.sides.evaluate_slopes(theta, self.grid)
            residuals, jacobians = [], []
            for (members, F, G), (side, d_side) in zip(self._members, sides, strict=True):
                c, dc = values[members], gradient[:, members]
                total = F @ c - self.weights @ side
                d_total = F @ dc.T - self.weights @ (d_side[numbers] * slopes[:, None]).T
                Gc = G @ c
                deviation = np.sqrt(np.maximum(Gc @ c, 1e-300))
                relative = total / deviation
                d_deviation = (Gc @ dc.T) / deviation[:, None]
                residuals.append(relative)
                jacobians.append((d_total - relative[:, None] * d_deviation) / deviation[:, None])
        found, slope = np.concatenate(residuals), np.concatenate(jacobians)
        bad = ~np.isfinite(found) | ~np.isfinite(slope).all(axis=1) | (np.abs(found) > 1e100)
        return np.where(bad, 1e6, found), np.where(bad[:, None], 0.0, slope)


@dataclass(frozen=True)
class _WeakForms:
    """The integrals over windows of one width in all records together.

    Parameters
    ----------
    forms : list of _WeakForm
        Of each record that holds enough.
    involved : list of int
        The learned parameters that occur in any of them.
    """

    forms: list[_WeakForm]
    involved: list[int]

    @property
    def count(self) -> int:
        """How many residuals there are."""
        return sum(form.count for form in self.forms)

    def evaluate(self, theta: Array, slopes: Array) -> tuple[Array, Array]:
        """Return residuals relative to their noise, and derivatives, of all records.

        Parameters
        ----------
        theta, slopes : arrays
            As for each record.
        """
        found = [form.evaluate(theta, self.involved, slopes) for form in self.forms]
        residuals, jacobians = zip(*found, strict=True)
        return np.concatenate(residuals), np.concatenate(jacobians)


def _thin_all(equations: ImpliedEquations) -> list[Series]:
    """Return all series of a record, thinned."""
    pairs = zip(equations.series, equations.kinds, strict=True)
    return [_thin(item) if not kind else _thin_input(item, kind, equations.window) for item, kind in pairs]


def _thin(item: Series) -> Series:
    """Return a series with one value for each time, and no more values than needed."""
    times, where = np.unique(item.times, return_inverse=True)
    counts = np.bincount(where)
    values = np.bincount(where, item.values) / counts
    std = np.bincount(where, np.nan_to_num(item.std)) / counts
    step = max(1, len(times) // _MOST)
    return Series(item.observable, times[::step], values[::step], std[::step])


def _thin_input(item: Series, kind: str, window: tuple[float, float]) -> Series:
    """Return the samples of an input that say something new; averages of neighbours where there are too many."""
    times, values = item.times, item.values
    if kind == "linear":
        # Beyond its samples it stays as it is.
        start, stop = min(window[0], float(times[0])), max(window[1], float(times[-1]))
        times = np.unique(np.concatenate([[start], times, [stop]]))
        values = np.interp(times, item.times, item.values)
    else:
        new = np.concatenate([[True], np.diff(values) != 0])
        times, values = times[new], values[new]
    if len(times) > _MOST:
        step = len(times) // _MOST + 1
        if kind == "hold":
            # The mean of what is held: integrals over windows, which are longer, hardly see the difference.
            area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
            places = np.append(np.arange(0, len(times) - 1, step), len(times) - 1)
            means = np.diff(area[places]) / np.diff(times[places])
            times, values = times[places], np.append(means, values[-1])
        else:
            times, values = times[::step], values[::step]
    return Series(item.observable, times, values, np.zeros(len(times)))


def _noise(item: Series) -> float:
    """Return about how noisy a series is, interpolation included: what third differences leave."""
    scatter = scatter_of(item.values) if len(item.values) > 4 else 0.0
    spread = float(item.values.std())
    return float(max(scatter, item.std.mean(), _FLOOR * spread, 1e-300))


def bump_integrals(times: Array, centres: Array, width: float, power: int, order: int) -> Array:
    """Return what each value contributes to integrals of a function times derivatives of bumps, shape (windows, n).

    The function is a straight line between its values; against that the integrals are exact: second differences of the
    second antiderivative of what stands beside it.

    Parameters
    ----------
    times : array, shape (n,)
        Of the values, ascending.
    centres : array, shape (windows,)
        Of the bumps.
    width : float
        Half of that of a bump.
    power, order : int
        p of the bump, and how often it is differentiated.
    """
    bump = Polynomial([1.0, 0.0, -1.0]) ** power
    twice = bump.deriv(order - 2) if order > 2 else bump.integ(2 - order, lbnd=-1.0) if order < 2 else bump
    s = (times[None, :] - centres[:, None]) / width
    inside = np.clip(s, -1.0, 1.0)
    # Beyond the bump its antiderivative goes on along its tangent.
    values = twice(inside) + twice.deriv()(inside) * (s - inside)
    steps = np.diff(times) / width
    slopes = np.diff(values, axis=1) / steps
    first = slopes[:, :1] - twice.deriv()(inside[:, :1])
    last = twice.deriv()(inside[:, -1:]) - slopes[:, -1:]
    return np.asarray(width ** (1 - order) * np.concatenate([first, np.diff(slopes, axis=1), last], axis=1))


def step_integrals(times: Array, centres: Array, width: float, power: int, order: int) -> Array:
    """Return what each value contributes to integrals of a held function times derivatives of bumps, (windows, n).

    Parameters
    ----------
    times : array, shape (n,)
        Of the values, ascending; each holds until the next, the first one before and the last one after all others.
    centres, width, power, order
        As in `bump_integrals`.
    """
    bump = Polynomial([1.0, 0.0, -1.0]) ** power
    once = bump.deriv(order - 1) if order > 1 else bump.integ(1, lbnd=-1.0) if order < 1 else bump
    edges = once(np.clip((times[None, :] - centres[:, None]) / width, -1.0, 1.0))
    edges[:, 0] = once(-1.0)
    last = np.full((len(centres), 1), once(1.0))
    return np.asarray(width ** (1 - order) * np.diff(np.concatenate([edges, last], axis=1), axis=1))
