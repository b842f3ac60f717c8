"""Start values for the parameters from the data: each channel is smoothed, and its derivatives fit the equations.

A classical two-step method (Varah 1982; Ramsay and Silverman 2005): biased by noise, but close enough to start from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import least_squares

from lodekit.algebra.decomposition import combine
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.data.observations import Series
from lodekit.errors import AlgebraError
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import ScalarTable, SignalTable
from lodekit.prior.latents import SquaredExponential
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = ["match_derivatives"]

Array = NDArray[np.float64]
_MOST_POINTS = 120
_GRID = 60
#: A mean squared mismatch, relative to the terms of the equations, that needs no second try.
_GOOD = 0.005


def match_derivatives(
    system: System, series: list[Series], layout: Layout, count: int, generator: np.random.Generator
) -> list[Array]:
    """Return parameter values, best first, at which smoothed data come close to satisfying the equations.

    Channels that are not measured are eliminated exactly. Parameters that occur in none of the equations that remain
    stay NaN. The list is empty where no equation remains.

    Parameters
    ----------
    system : System
    series : list of Series
        Measurements, or averages of them, in the user's units.
    layout : Layout
        Which parameters are learned, and over which range.
    count : int
        How many different values are returned at most, each of shape (p,).
    generator : numpy.random.Generator
        For the points that the least-squares searches start from.
    """
    try:
        equations = _usable_equations(system, series)
    except AlgebraError:
        # Too large to eliminate what is hidden; a start is no more than a start.
        return []
    involved = [] if equations is None else _involved(equations, layout)
    if equations is None or not involved:
        return []

    def parameters(x: Array, others: float) -> Array:
        theta = np.where(np.isnan(layout.fixed), others, layout.fixed)
        for position, number in enumerate(involved):
            transform = layout.transforms[number]
            theta[number] = transform.forward(transform.centre + float(x[position]))
        return theta

    found: list[tuple[float, int, Array]] = []
    for attempt in range(max(3, count)):
        x0 = np.array([_place(layout, n, layout.guess(n, attempt, generator)) for n in involved])
        result = least_squares(lambda x: equations.mismatch(parameters(x, 1.0)), x0, bounds=(-30.0, 30.0), max_nfev=60)
        found.append((float(result.cost), attempt, result.x))
        lowest = min(cost for cost, *_ in found)
        if lowest < _GOOD * len(result.fun):
            break
        if sum(1 for cost, *_ in found if cost < lowest * 1.001 + 1e-12) >= 2:
            break
    found.sort(key=lambda item: item[:2])
    starts: list[Array] = []
    for _, _, x in found:
        theta = parameters(x, np.nan)
        if all(np.nanmax(np.abs(theta - other) / (np.abs(theta) + np.abs(other) + 1e-300)) > 0.02 for other in starts):
            starts.append(theta)
    return starts[:count]


def _place(layout: Layout, number: int, value: float) -> float:
    """Return where a value of a parameter stands, counted from where starts are sought: the same in any unit."""
    transform = layout.transforms[number]
    return transform.inverse(value) - transform.centre


@dataclass(frozen=True)
class _Equations:
    """Equations with smoothed data put in: a small nonlinear least-squares problem in the parameters.

    Parameters
    ----------
    numbers : list of int
        Which rows of the operator matrix.
    grid : array, shape (n,)
        Times at which the equations should hold, in the user's units.
    coefficients : ScalarTable
        One for each term.
    features : array, shape (terms, n)
        The smoothed derivative that each term multiplies.
    equation : int array, shape (terms,)
        The equation each term belongs to.
    sides : SignalTable
        The known right-hand sides.
    operator : OperatorMatrix
    forcing : sequence of Signal
        Both sides of the equations between measured channels, exactly.
    """

    numbers: list[int]
    grid: Array
    coefficients: ScalarTable
    features: Array
    equation: NDArray[np.intp]
    sides: SignalTable
    operator: OperatorMatrix
    forcing: Sequence[Signal]

    def mismatch(self, theta: Array) -> Array:
        """Return the residuals of all equations at values of the parameters, each relative to the size of its terms."""
        shape = (len(self.numbers), len(self.grid))
        total, size = np.zeros(shape), np.zeros(shape)
        with np.errstate(all="ignore"):
            parts = self.coefficients.evaluate(theta)[0][:, None] * self.features
            np.add.at(total, self.equation, parts)
            np.add.at(size, self.equation, parts**2)
            for n, side in enumerate(self.sides.evaluate(theta, self.grid)):
                total[n] -= side
                size[n] += side**2
            scaled = total / np.sqrt(size.mean(axis=1, keepdims=True) + 1e-300)
        return np.asarray(np.nan_to_num(scaled.ravel(), nan=1e3, posinf=1e3, neginf=-1e3))


def _usable_equations(system: System, series: list[Series]) -> _Equations | None:
    """Return the equations between measured channels with smoothed data put in; None where there are none."""
    observed = {item.observable: item for item in series if item.observable in system.channels and len(item.times) > 4}
    operator, forcing = _without_hidden(system, observed)
    numbers = [i for i, row in enumerate(operator.rows) if any(row)]
    start = max((float(item.times.min()) for item in observed.values()), default=0.0)
    stop = min((float(item.times.max()) for item in observed.values()), default=0.0)
    if not numbers or not stop > start:
        return None
    margin = 0.05 * (stop - start)
    grid = np.linspace(start + margin, stop - margin, _GRID)
    terms = [
        (n, system.channels[j], k, value)
        for n, i in enumerate(numbers)
        for j in range(operator.width)
        for k, value in enumerate(operator.coefficients(i, j))
        if value
    ]
    orders: dict[str, int] = {}
    for _, name, k, _ in terms:
        orders[name] = max(orders.get(name, 0), k)
    smooth = {name: _smooth(observed[name], grid, order) for name, order in orders.items()}
    return _Equations(
        numbers,
        grid,
        ScalarTable(operator.ring, [value for *_, value in terms]),
        np.stack([smooth[name][k] for _, name, k, _ in terms]),
        np.array([n for n, *_ in terms]),
        SignalTable(operator.ring, [forcing[i] for i in numbers]),
        operator,
        forcing,
    )


def _without_hidden(system: System, observed: Collection[str]) -> tuple[OperatorMatrix, list[Signal]]:
    """Return the equations between measured channels alone that the system implies: hidden ones are eliminated."""
    operator, ring = system.operator, system.operator.ring
    hidden = [j for j, name in enumerate(system.channels) if name not in observed]
    if not hidden:
        return operator, list(system.forcing)
    _, _, weights = kernel_and_image(ring, [[row[j] for j in hidden] for row in operator.rows])
    rows = [combine(ring, weight, operator.rows) for weight in weights]
    forcing = []
    for weight in weights:
        total = Signal(ring)
        for factor, bottom, signal in zip(weight, operator.denominators, system.forcing, strict=True):
            total = total + signal.apply([Scalar(ring, c * bottom) for c in factor])
        forcing.append(total)
    return OperatorMatrix(ring, rows, [ring.one] * len(rows), operator.width), forcing


def _involved(equations: _Equations, layout: Layout) -> list[int]:
    """Return the learned parameters that occur in the usable equations."""
    usable, ring, operator = equations.numbers, equations.operator.ring, equations.operator
    offset = len(ring.constants)
    elements = [operator.denominators[i] for i in usable]
    elements += [value for i in usable for entry in operator.rows[i] for value in entry]
    for i in usable:
        for wave, value in equations.forcing[i].terms.items():
            elements += [p for s in (value, wave.rate, wave.frequency) for p in (s.numerator, s.denominator)]
    seen = {
        k for element in elements for exponents in ring.terms(element) for k, e in enumerate(exponents[offset:]) if e
    }
    return [number for number in layout.learned if number in seen]


def _smooth(item: Series, grid: Array, order: int) -> list[Array]:
    """Return a smoothed series and its derivatives on a grid: a squared-exponential regression of best evidence."""
    step = max(1, len(item.times) // _MOST_POINTS)
    times, values = item.times[::step], item.values[::step]
    span = float(np.ptp(item.times)) or 1.0
    centre = float(values.mean())
    y = values - centre
    best: tuple[float, float, Array] | None = None
    lag = (times[:, None] - times[None, :]) / span
    for ell in np.geomspace(0.05, 1.0, 6):
        K = np.exp(-0.5 * (lag / ell) ** 2)
        for noise in (1e-5, 1e-3, 3e-2, 0.3):
            try:
                factor = cho_factor(K + noise * np.eye(len(K)), lower=True)
            except LinAlgError:
                continue
            alpha = cho_solve(factor, y)
            amplitude = max(float(y @ alpha) / len(y), 1e-300)
            value = 0.5 * len(y) * np.log(amplitude) + float(np.log(np.diag(factor[0])).sum())
            if best is None or value < best[0]:
                best = (float(value), float(ell), alpha)
    if best is None:
        return [np.full(len(grid), centre)] + [np.zeros(len(grid))] * order
    _, ell, alpha = best
    u = (grid[:, None] - times[None, :]) / (ell * span)
    stack = SquaredExponential().stack(np, u, order)
    return [(centre if m == 0 else 0.0) + (ell * span) ** -m * (part @ alpha) for m, part in enumerate(stack)]
