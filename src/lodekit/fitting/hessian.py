"""The Hessian of the objective at an optimum (observed Fisher information), and the covariance that follows from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.fitting import search_options as options
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.support.arguments import Array, Mask


def observed_information(objective: Objective, x: Array, step: float | None = None) -> Array:
    """Return minus the Hessian of an objective, shape (n, n), by central differences of its closed-form gradient.

    Shapes: x (n,).
    """
    opt = options.SEARCH
    size = len(x)
    found = np.zeros((size, size))
    for k in range(size):
        width = step or opt.hessian_step
        found[k] = _hessian_row(objective, x, k, width)
        # If the peak is narrower than the step, the step is reduced; the first curvature shows by how much.
        while width > opt.min_hessian_step and not width**2 * abs(found[k, k]) < opt.max_hessian_step_drop:
            told = 0.1 / np.sqrt(abs(found[k, k])) if np.isfinite(found[k, k]) else 0.0
            width = max(opt.min_hessian_step, min(0.1 * width, told))
            found[k] = _hessian_row(objective, x, k, width)
    return 0.5 * (found + found.T)


def _hessian_row(objective: Objective, x: Array, index: int, step: float) -> Array:
    """Return a row of minus the Hessian, shape (n,), from gradients on both sides of a point."""
    sides = []
    for sign in (1.0, -1.0):
        moved = x.copy()
        moved[index] += sign * step
        sides.append(objective.evaluate(moved)[1])
    return np.asarray((sides[1] - sides[0]) / (2 * step))


def observed_information_across_kinks(
    objective: Objective, x: Array, information: Array, is_free: Mask, indices: Sequence[int]
) -> Array:
    """Return minus the Hessian for standard errors, shape (n, n), if the objective may have a kink at its optimum.

    A step of a held input may arrive, after a delay, exactly at a measurement; with a longer delay it does not affect
    this measurement, so the slope of the objective in the delay jumps. If the slope jumps from positive to negative,
    the estimate is at the kink, and finite differences give a larger curvature the smaller their step is. Standard
    errors depend on how far the objective falls within an interval. Differences of the gradient over one standard
    error s to either side measure that: a jump J adds J/(2s) to the curvature, and so Js to the decrease of the
    parabola at two standard errors, as for the objective, averaged over both sides. Other kinks within one standard
    error are included if they increase the curvature. Without kinks, the curvature is returned unchanged.

    Shapes: x (n,), information (n, n), is_free (n,).
    """
    opt = options.SEARCH

    def replaced(matrix: Array, k: int, width: float) -> Array:
        row, found = _hessian_row(objective, x, k, width), matrix.copy()
        found[k] = found[:, k] = row
        return found

    def error(matrix: Array, k: int) -> float:
        return float(np.sqrt(max(invert_information(matrix, is_free)[k, k], 0.0)))

    with np.errstate(all="ignore"):
        errors = {k: width for k in indices if is_free[k] and 0.0 < (width := error(information, k)) < opt.max_kink_std}
        kinked = []
        for k, width in errors.items():
            wide = replaced(information, k, width)
            narrow = _hessian_row(objective, x, k, min(opt.hessian_step, opt.kink_probe_fraction * width))[k]
            if error(wide, k) > opt.kink_error_ratio * width or narrow > opt.kink_curvature_ratio * wide[k, k] > 0.0:
                kinked.append(k)
        if not kinked:
            return information
        # The given curvature may come from differences across a kink: it is computed again.
        found = observed_information(objective, x)
        for _ in range(opt.max_kink_iterations):
            before = [error(found, k) for k in kinked]
            for k, width in zip(kinked, before, strict=True):
                found = replaced(found, k, min(width, opt.max_kink_std))
            after = [error(found, k) for k in kinked]
            if np.allclose(before, after, rtol=opt.kink_tolerance):
                break
    return found if np.isfinite(found).all() else information


def residual_dof_fraction(layout: ParameterLayout, n_measurements: int, at_bound: Mask) -> float:
    """Return the residual degrees of freedom divided by the number of measurements; variances are divided by it.

    The estimated noise variance is too small by a factor of about 1 - p/N, with p estimated quantities other than
    noise levels and N measurements; so are variances of curves, and the information is too large: the same correction
    as in the residual variance of a regression. Without estimated noise levels it is one.

    Shapes: at_bound (n,).
    """
    if not layout.n_noise_levels:
        return 1.0
    noise = layout.slices.noise
    used = int(np.sum(~at_bound[: noise.start])) + int(np.sum(~at_bound[noise.stop :]))
    return max(n_measurements - used, 1) / n_measurements


def invert_information(information: Array, is_free: Mask) -> Array:
    """Return the covariance of the estimates, shape (n, n); flat directions get an infinite variance.

    Shapes: information (n, n), is_free (n,).
    """
    size = len(information)
    total = np.zeros((size, size))
    inner = np.flatnonzero(is_free)
    if not len(inner):
        return total
    part = information[np.ix_(inner, inner)]
    if not np.isfinite(part).all():
        total[inner, inner] = np.inf
        return total
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    usable = eigenvalues > options.SEARCH.flat_eigenvalue * max(float(eigenvalues.max()), 1e-300)
    inverse = (vectors[:, usable] / eigenvalues[usable]) @ vectors[:, usable].T
    flat = (vectors[:, ~usable] ** 2).sum(axis=1) > options.SEARCH.flat_direction_share
    found = inverse * np.outer(scale, scale)
    found[flat, flat] = np.inf
    total[np.ix_(inner, inner)] = found
    return total


def whitening_axes(information: Array, floor: float | None = None, min_diagonal: float = 1e-12) -> tuple[Array, bool]:
    """Return directions, as columns, in which the information is the identity, and whether it is ill-conditioned.

    Eigenvalues below a fraction `floor` of the largest are replaced by it, so that steps along flat directions are
    short.

    Shapes: information (n, n).
    """
    opt = options.SEARCH
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(information)), min_diagonal))
    eigenvalues, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    largest = max(float(eigenvalues.max()), 1e-300)
    sizes = np.maximum(np.abs(eigenvalues), (opt.flat_eigenvalue if floor is None else floor) * largest)
    is_ill_conditioned = float(eigenvalues.min()) < opt.ill_conditioned_ratio * largest
    return scale[:, None] * vectors / np.sqrt(sizes), is_ill_conditioned
