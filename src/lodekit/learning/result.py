"""Estimates with standard errors, honest about flat directions, and the table that people know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.transforms import Layout

__all__ = ["NORMAL_95", "Estimate", "estimate_parameters", "format_summary"]

Array = NDArray[np.float64]
#: A 95 % interval reaches this many standard deviations to either side.
NORMAL_95 = 1.959963984540054
#: A standard error beyond this on the unconstrained scale means that the data say nothing about the parameter.
_FLAT = 3.0
_FLAT_UNBOUNDED = 10.0


@dataclass(frozen=True)
class Estimate:
    """A learned parameter.

    Parameters
    ----------
    value : float
    std_error : float
        From the curvature of the evidence; zero for a fixed parameter, infinite where the data do not identify it.
    interval : (float, float)
        95 %; positive parameters have positive intervals, bounded ones stay inside their bounds.
    identified : bool
    note : str
    """

    value: float
    std_error: float
    interval: tuple[float, float]
    identified: bool = True
    note: str = ""


def covariance_from_hessian(hessian: Array, keep: NDArray[np.bool_]) -> Array:
    """Return the covariance of what was learned; directions without curvature get an infinite variance."""
    size = len(hessian)
    total = np.zeros((size, size))
    inner = np.flatnonzero(keep)
    if not len(inner):
        return total
    part = hessian[np.ix_(inner, inner)]
    if not np.isfinite(part).all():
        total[inner, inner] = np.inf
        return total
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    usable = eigenvalues > 1e-9 * max(float(eigenvalues.max()), 1e-300)
    inverse = (vectors[:, usable] / eigenvalues[usable]) @ vectors[:, usable].T
    flat = (vectors[:, ~usable] ** 2).sum(axis=1) > 1e-6
    found = inverse * np.outer(scale, scale)
    found[flat, flat] = np.inf
    total[np.ix_(inner, inner)] = found
    return total


def estimate_parameters(layout: Layout, x: Array, hessian: Array, at_bound: NDArray[np.bool_]) -> dict[str, Estimate]:
    """Return the parameters of the system by name."""
    covariance = covariance_from_hessian(hessian, ~at_bound)
    theta = layout.unpack(x).theta
    found = {}
    for number, name in enumerate(layout.names):
        value = float(theta[number])
        if number not in layout.transforms:
            found[name] = Estimate(value, 0.0, (value, value), note="fixed")
            continue
        position, transform = layout.free.index(number), layout.transforms[number]
        if at_bound[position]:
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, "at its bound")
            continue
        width = transform.high - transform.low
        if math.isfinite(width) and min(value - transform.low, transform.high - value) < 1e-3 * width:
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, "at its bound")
            continue
        spread = math.sqrt(max(float(covariance[position, position]), 0.0))
        point = float(x[position])
        constrained = not transform.is_unbounded
        error = abs(transform.slope(point)) * spread
        # What may be anything is judged in its own unit: near zero the scale of the search is arbitrarily fine.
        flat = spread > _FLAT if constrained else error > _FLAT_UNBOUNDED * max(abs(value), 1.0)
        if not math.isfinite(error) or spread == 0.0 or flat:
            limits = (transform.low, transform.high)
            found[name] = Estimate(value, math.inf, limits, False, "not identified by these data")
            continue
        if constrained:
            reach = NORMAL_95 * spread
            ends = sorted((transform.forward(point - reach), transform.forward(point + reach)))
        else:
            # The scale of the search is only a means there: it knows zero, which the data need not know.
            ends = [value - NORMAL_95 * error, value + NORMAL_95 * error]
        found[name] = Estimate(value, error, (ends[0], ends[1]))
    return found


def _digits(value: float, error: float) -> str:
    """Return a number with as many digits as its error allows to be told apart, five at least.

    Examples
    --------
    >>> _digits(2.97161234, 0.04), _digits(1.0, 6e-6), _digits(0.999988, 6e-6)
    ('2.9716', '1', '0.999988')
    """
    size = math.log10(abs(value) / error) if value and error > 0 and math.isfinite(error) else 0.0
    return f"{value:.{min(max(5, math.ceil(size) + 1), 10)}g}"


def format_summary(
    title: Sequence[tuple[str, str]],
    parameters: Mapping[str, Estimate],
    others: Mapping[str, float],
    warnings: Sequence[str],
) -> str:
    """Return the result as a table in the style of statistics packages."""
    width = 78
    rule, line = "=" * width, "-" * width
    lines = ["LODE-GP Results".center(width).rstrip(), rule]
    half = (len(title) + 1) // 2
    for left, right in zip(title[:half], [*title[half:], ("", "")][:half], strict=True):
        first = f"{left[0] + ':':<18}{left[1]:>20}"
        second = f"{right[0] + ':' if right[0] else '':<18}{right[1]:>20}"
        lines.append(f"{first}  {second}".rstrip())
    lines.append(rule)
    if parameters:
        lines += [f"{'':<18}{'coef':>12}{'std err':>12}{'[0.025':>14}{'0.975]':>14}", line]
        for name, estimate in parameters.items():
            if estimate.note:
                lines.append(f"{name:<18}{estimate.value:>12.5g}   {estimate.note}")
            else:
                low, high = (_digits(edge, estimate.std_error) for edge in estimate.interval)
                value = _digits(estimate.value, estimate.std_error)
                lines.append(f"{name:<18}{value:>12}{estimate.std_error:>12.3g}{low:>14}{high:>14}")
        lines.append(line)
    lines += [f"{name:<34}{value:>12.5g}" for name, value in others.items()]
    lines.append(rule)
    lines += [f"Warning: {warning}" for warning in warnings]
    return "\n".join(lines)
