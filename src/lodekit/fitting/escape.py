"""Other local maxima of the objective along a lengthscale, and the choice between equivalent optima.

On the logarithmic scale of the search, zero is infinitely far away: an inactive standard deviation is set to a
negligible value and is not searched. Of several optima that differ in signs only, the one with the most positive
parameters is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np

from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.starts.candidates import initialize_disturbances
from lodekit.support.arguments import Array


def scan_lengthscales(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the local maxima of the objective along each lengthscale, except the optimum itself.

    Steps in an input cause several of them, close to each other.
    """
    opt, block, reach = options.SEARCH, objective.layout.slices.lengthscales, objective.engine.search_limits
    low, high = float(np.log(reach.min_lengthscale)), float(np.log(reach.max_lengthscale))
    for place in range(block.start, min(block.stop, block.start + opt.max_scanned_lengthscales)):
        if np.exp(optimum.x[place]) > opt.long_lengthscale or objective.engine.prior.channels is not None:
            continue
        moves = np.log(opt.lengthscale_factor ** np.arange(*opt.lengthscale_exponents))
        moves = moves[(optimum.x[place] + moves > low) & (optimum.x[place] + moves < high)]
        points = [optimum.x.copy() for _ in moves]
        for point, move in zip(points, moves, strict=True):
            point[place] += move
            point[objective.layout.slices.noise] += opt.noise_exponent * move
        with np.errstate(all="ignore"):
            heights = [optimum.value if not move else objective.value(x) for move, x in zip(moves, points, strict=True)]
        rises = [after > before for before, after in pairwise(heights)]
        for k, point in enumerate(points):
            is_top = (k == 0 or rises[k - 1]) and (k == len(points) - 1 or not rises[k])
            if moves[k] and is_top and heights[k] > optimum.value - opt.scan_gap:
                yield point


def zero_inactive_disturbances(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum with inactive standard deviations of modes and disturbances next to zero, at their bounds."""
    opt, layout, best = options.SEARCH, objective.layout, optimum
    if not layout.n_disturbances:
        return best
    modes, blocks = layout.slices.mode_deviations, layout.slices
    for place in range(modes.start, modes.stop):
        best = _move_if_inactive(objective, best, place, float(best.x[place]) - opt.mode_std_probe)
    disturbed = objective.engine.prior.observables.disturbances
    coloured = disturbed.coloured_index if disturbed is not None else ()
    hyper = initialize_disturbances(objective.engine, layout, layout.unpack(best.x), opt.zero_disturbance_share)
    for k, least in enumerate(layout.pack(hyper)[blocks.disturbance_deviations].tolist()):
        before, place = best, blocks.disturbance_deviations.start + k
        best = _move_if_inactive(objective, best, place, min(float(best.x[place]), least))
        if best is not before and k in coloured:
            # The lengthscale of an inactive disturbance has no effect.
            best.at_bound[blocks.disturbance_lengthscales.start + coloured.index(k)] = True
    return best


def _move_if_inactive(objective: Objective, optimum: Optimum, place: int, bound: float) -> Optimum:
    """Return an optimum with one entry moved to its bound, if the objective loses less than `min_variance_gain`."""
    x, at_bound = optimum.x.copy(), optimum.at_bound.copy()
    x[place], at_bound[place] = bound, True
    value = objective.value(x)
    is_inactive = value >= optimum.value - options.SEARCH.min_variance_gain
    return replace(optimum, x=x, value=value, at_bound=at_bound) if is_inactive else optimum


def canonicalize_signs(
    objective: Objective, optimum: Optimum, information: Array, symmetries: Sequence[frozenset[str]]
) -> tuple[Optimum, Array]:
    """Return the optimum with the most positive parameters among those that differ in signs, and its information.

    If the user has given a negative start value, the negative sign is preferred.

    Shapes: information (n, n).
    """
    opt, layout = options.SEARCH, objective.layout
    learned = [layout.names[number] for number in layout.free_parameters]
    by_name = np.argsort(learned)
    wanted = np.array([-1.0 if (objective.parameters[name].start or 0.0) < 0 else 1.0 for name in learned])
    signs, best = np.sign(optimum.x[: len(learned)]), np.ones(len(learned))
    for size in range(1, min(len(symmetries), opt.max_symmetries) + 1):
        for chosen in combinations(symmetries[: opt.max_symmetries], size):
            flip = np.ones(len(learned))
            for names in chosen:
                flip *= np.array([-1.0 if name in names else 1.0 for name in learned])
            if _sign_key((signs * flip * wanted)[by_name]) > _sign_key((signs * best * wanted)[by_name]):
                best = flip
    if (best > 0).all():
        return optimum, information
    whole = np.ones(layout.size)
    whole[: len(learned)] = best
    x = whole * optimum.x
    value = objective.value(x)
    if not abs(value - optimum.value) < opt.symmetry_tolerance * (1.0 + abs(optimum.value)):
        return optimum, information
    return replace(optimum, x=x), information * np.outer(whole, whole)


def _sign_key(signs: Array) -> tuple[int, ...]:
    """Return the sort key of a choice of signs: how many are positive, then which."""
    return (int(np.sum(signs > 0)), *(int(sign > 0) for sign in signs))
