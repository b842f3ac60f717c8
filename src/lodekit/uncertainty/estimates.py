"""Parameter estimates with standard errors (delta method) and Student intervals.

Their degrees of freedom follow from the Satterthwaite approximation (Satterthwaite 1946).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from lodekit.fitting.hessian import invert_information
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout, ParameterTransform
from lodekit.support.arguments import Array, Mask
from lodekit.support.text import format_number, format_uncertain

#: A 95 % interval reaches this many standard deviations to either side.
NORMAL_QUANTILE_95 = 1.959963984540054
#: Note of a parameter that the data do not identify.
NOT_IDENTIFIED_MESSAGE = "not identified by these data"
#: Notes of parameters at a bound given by the user, or at the limits of the search.
AT_BOUND_MESSAGES = AT_BOUND, AT_ZERO, AT_INFINITY = "at its bound", "tends to zero", "tends to infinity"
#: Smallest degrees of freedom; fewer only mean that the standard error itself is hardly known.
_MIN_DOF = 3.0
#: A parameter with a larger standard error on the search scale is treated as unidentified.
_MAX_KNOWN_STD = 30.0


@dataclass(frozen=True)
class Estimate:
    """An estimated parameter of the system, in the user's units.

    Parameters
    ----------
    value : float
        The estimate, or the fixed value.
    std_error : float
        Standard error from the Hessian at the optimum; zero if fixed, infinite if the data do not identify it.
    interval : (float, float)
        95 % interval; positive for positive parameters, and inside the bounds for bounded ones.
    identified : bool
        Whether the data identify it; also true for a fixed parameter.
    note : str
        Why there is no interval, such as "fixed", "at its bound" or "tends to zero"; empty otherwise.

    Examples
    --------
    >>> found = Estimate(2.97161234567, 0.0421234567, (2.88911234567, 3.05411234567))
    >>> found
    Estimate(value=2.972, std_error=0.042, interval=(2.889, 3.054))
    >>> print(found)
    2.972 ± 0.042 (95 % interval: 2.889 to 3.054)
    >>> found.value
    2.97161234567
    """

    value: float
    std_error: float
    interval: tuple[float, float]
    identified: bool = True
    note: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether the data determine an interval: not if it is fixed, at its bound, or not identified."""
        return self.identified and self.std_error > 0.0 and math.isfinite(self.std_error)

    def __repr__(self) -> str:
        # Digits beyond the standard error are meaningless; `value` has them all.
        low, high = (format_number(edge, self.std_error) for edge in self.interval)
        shown = f"value={format_number(self.value, self.std_error)}, std_error={self.std_error:.2g}"
        more = f", note={self.note!r}" if self.note else ""
        return f"Estimate({shown}, interval=({low}, {high}){more})"

    def __str__(self) -> str:
        if not self.has_interval:
            return f"{self.value:.5g}" + (f" ({self.note})" if self.note else "")
        low, high = (format_number(edge, self.std_error) for edge in self.interval)
        return f"{format_uncertain(self.value, self.std_error)} (95 % interval: {low} to {high})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; infinite numbers are None."""
        error, *interval = (x if math.isfinite(x) else None for x in (self.std_error, *self.interval))
        return asdict(self) | {"std_error": error, "interval": interval}


def estimate_parameters(
    layout: ParameterLayout,
    x: Array,
    information: Array,
    at_bound: Mask,
    n_points: int | None = None,
    dof: Array | None = None,
    inflation_factors: Array | None = None,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """Return the parameters of the system by name, with standard errors and intervals.

    Shapes: x (n,), information (n, n), at_bound (n,), dof (p,), inflation_factors (p,).
    """
    enough = n_points is None or n_points >= layout.size
    covariance = invert_information(information, ~at_bound)
    theta = layout.unpack(x).theta
    found = {}
    for number, name in enumerate(layout.names):
        value = float(theta[number])
        if number not in layout.transforms:
            found[name] = Estimate(value, 0.0, (value, value), note="fixed")
            continue
        position, transform = layout.free_parameters.index(number), layout.transforms[number]
        width = transform.high - transform.low
        # A parameter within a thousandth of its interval from a bound is at it.
        close = math.isfinite(width) and min(value - transform.low, transform.high - value) < 1e-3 * width
        if at_bound[position] or close:
            end = AT_ZERO if abs(value) < transform.expected_magnitude else AT_INFINITY
            note = AT_BOUND if math.isfinite(width) else end
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, note)
            continue
        point, factor = float(x[position]), 1.0 if inflation_factors is None else float(inflation_factors[position])
        plain = math.sqrt(max(float(covariance[position, position]), 0.0))
        spread = factor * plain
        error = abs(transform.derivative(point)) * spread
        # Not identified: a factor of exp(3), or ten times the magnitude of an unbounded parameter; near zero, the
        # search scale is arbitrarily fine.
        size = max(abs(value), transform.expected_magnitude)
        flat = error > 10.0 * size if transform.is_unbounded else spread > 3.0
        if not math.isfinite(error) or spread == 0.0 or flat or not enough:
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, NOT_IDENTIFIED_MESSAGE)
            continue
        reach = plain * inflated_quantile(confidence, math.inf if dof is None else float(dof[position]), factor)
        found[name] = Estimate(value, error, confidence_interval(transform, point, reach))
    return found


def confidence_interval(transform: ParameterTransform, point: float, half_width: float) -> tuple[float, float]:
    """Return an interval of given half-width on the search scale; linear for unbounded parameters."""
    if not transform.is_unbounded:
        low, high = sorted((transform.forward(point - half_width), transform.forward(point + half_width)))
        return low, high
    # The search scale of an unbounded parameter is not linear near zero, a value that the data need not distinguish.
    linear = abs(transform.derivative(point)) * half_width
    return transform.forward(point) - linear, transform.forward(point) + linear


def student_quantile(confidence: float, dof: float = math.inf) -> float:
    """Return the half-width of an interval in standard errors.

    Examples
    --------
    >>> round(student_quantile(0.95), 3), round(student_quantile(0.95, 10.0), 3)
    (1.96, 2.228)
    """
    return float(stdtrit(dof, 0.5 + 0.5 * confidence)) if dof < 1e6 else float(ndtri(0.5 + 0.5 * confidence))


def inflated_quantile(confidence: float, dof: float, inflation_factor: float = 1.0) -> float:
    """Return the half-width of an interval in standard errors if residuals are correlated.

    Examples
    --------
    >>> round(inflated_quantile(0.95, 40.0), 3), round(inflated_quantile(0.95, 40.0, 2.0), 3)
    (2.021, 4.456)
    """
    return float(inflation_factor) * student_quantile(confidence, max(float(dof) / inflation_factor**2, _MIN_DOF))


#: Steps of differences, in standard errors: long ones leave a curved ridge, but are needed next to a kink.
_DIFFERENCE_STEPS = 0.1, 0.5


def satterthwaite_dof(objective: Objective, x: Array, covariance: Array) -> tuple[Array, Array]:
    """Return the degrees of freedom of each free parameter's standard error, infinite by default, and profile bends.

    The standard error depends on noise levels, lengthscales and amplitudes, which are estimates as well. With the
    variance V of a parameter, its gradient d with respect to these, and their covariance C, the variance of V is
    ``d^T C d``; that of a variance estimated from n independent normal errors is ``2 V^2 / n``. So n is the degrees of
    freedom of Student's distribution (Satterthwaite approximation); with one noise level it is the textbook result.

    V is an entry of the inverse information, and its gradient consists of third derivatives of the objective, twice
    along one direction: a second difference of the gradient gives all of them, with two evaluations per parameter.

    The same evaluations show how far a profile likelihood deviates from a parabola: the relative deviation of its fall
    at two standard errors. With the second derivative q of the gradient along the direction d of a unit standard error,
    and the fourth derivative f of the objective, ``P(s) = -s^2/2 + (d q) s^3/6 + f s^4/24
    + (q^T C q - (d q)^2) s^4/8``, where the last term is the gain from re-optimising all other entries.

    Shapes: x (n,), covariance (n, n). Returns two arrays of shape (p,).
    """
    blocks = objective.layout.slices
    count, rest = blocks.theta.stop, slice(blocks.theta.stop, len(x))
    found, bends = np.full(count, np.inf), np.zeros(count)
    known = np.isfinite(np.diag(covariance)) & (np.diag(covariance) > 0.0)
    finite = _condition_on_unidentified(np.where(np.outer(known, known), covariance, 0.0), count)
    # With this many measurements and no free function, about as many degrees of freedom remain.
    is_large = objective.engine.size >= 100_000 and objective.layout.is_deterministic
    if not known[:count].any() or is_large:
        return found, bends
    with np.errstate(all="ignore"):
        top, centre = objective.evaluate(x)
        # With very large standard errors, the objective is not finite at these points, and evaluations are slow.
        for k in np.flatnonzero(known[:count] & (np.diag(finite)[:count] < _MAX_KNOWN_STD**2)).tolist():
            for step in _DIFFERENCE_STEPS:
                along = step * finite[k] / np.sqrt(finite[k, k])
                (up, above), (down, below) = (objective.evaluate(x + sign * along) for sign in (1.0, -1.0))
                # Next to a kink, short steps only measure the kink.
                fall = 2.0 * top - up - down
                if fall < 2.0 * step**2:
                    break
            if not fall > 0.0:
                continue
            # A fourth derivative affects the gradient difference twice as much, so this combination cancels it.
            second, curvature = above + below - 2.0 * centre, 2.0 * fall - 0.5 * float(along @ (below - above))
            # The gradient of V relative to V.
            slopes = second[rest] / fall
            spread = float(slopes @ finite[rest, rest] @ slopes)
            if np.isfinite(spread) and spread > 0.0:
                found[k] = max(2.0 / spread, _MIN_DOF)
            # In units of a standard error; below, at two standard errors, relative to the fall of a parabola.
            cubic = float(along @ second) / (curvature * step)
            quartic = 12.0 * (1.0 - fall / curvature) / step**2
            transform = objective.layout.transforms[objective.layout.free_parameters[k]]
            # Intervals of unbounded parameters are linear; the search scale is not, least of all near zero.
            slope = transform.log_jacobian_gradient(float(x[k])) if transform.is_unbounded else 0.0
            linear = slope * float(np.sqrt(finite[k, k]))
            gain = float(second @ finite @ second) / curvature**2 - cubic**2
            # Student's t distribution accounts for the bend due to estimated noise.
            bend = 2.0 / 3.0 * abs(cubic + 3.0 * linear) + max(quartic / 3.0 + gain - 2.0 / found[k], 0.0)
            is_coarse = transform.is_unbounded and finite[k, k] > 0.25
            bends[k] = 0.0 if is_coarse else bend if curvature > 0.0 and np.isfinite(bend) else np.inf
    return found, bends


def _condition_on_unidentified(covariance: Array, n_parameters: int) -> Array:
    """Return the covariance conditioned on unidentified parameters, among the first `n_parameters` entries.

    A quantity that is confounded with such a parameter, as the std of a disturbance with a factor in front of it, is
    determined if the parameter is fixed; standard errors do not depend on the value at which it is fixed.
    """
    lost = np.flatnonzero(np.diag(covariance)[:n_parameters] >= _MAX_KNOWN_STD**2)
    if not len(lost):
        return covariance
    beside = covariance[:, lost]
    found: Array = covariance - beside @ np.linalg.pinv(covariance[np.ix_(lost, lost)], hermitian=True) @ beside.T
    # Differences of large numbers: a remainder of the size of rounding errors is not a variance.
    sizes = np.diag(covariance)
    gone = np.diag(found) <= 1e-10 * sizes
    found[gone], found[:, gone] = 0.0, 0.0
    found[lost, lost] = sizes[lost]
    return found
