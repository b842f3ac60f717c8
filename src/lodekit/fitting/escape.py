"""Starting points beyond local optima that a search is known to end in, and the choice between equivalent optima.

Other lengthscales are scanned, runaway parameters and entries on plateaus are reset. On the logarithmic scale of the
search, zero is infinitely far away: an inactive standard deviation is set to next to nothing and is not searched. Of
several optima that differ in signs only, the one with the most positive parameters is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.starts.candidates import VarianceTargets, initialize_disturbances, match_variances

Array = NDArray[np.float64]


def scan_lengthscales(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the tops of the log evidence along each lengthscale, other than the optimum itself."""
    opt = options.SEARCH
    block = objective.layout.slices.lengthscales
    reach = objective.engine.search_limits
    low, high = float(np.log(reach.min_lengthscale)), float(np.log(reach.max_lengthscale))
    for place in range(block.start, min(block.stop, block.start + opt.max_scanned_lengthscales)):
        length = float(np.exp(optimum.x[place]))
        if length > opt.long_lengthscale or objective.engine.prior.channels is not None:
            continue
        moves = np.log(opt.lengthscale_factor ** np.arange(*opt.lengthscale_exponents))
        near = np.log(opt.lengthscale_factor) * np.array(
            opt.neighbour_exponents if length < opt.short_lengthscale else ()
        )
        moves = moves[(optimum.x[place] + moves > low) & (optimum.x[place] + moves < high)]
        points = [optimum.x.copy() for _ in moves]
        for point, move in zip(points, moves, strict=True):
            point[place] += move
            point[objective.layout.slices.noise] += opt.noise_exponent * move
        with np.errstate(all="ignore"):
            heights = [optimum.value if not move else objective.value(x) for move, x in zip(moves, points, strict=True)]
        rises = [after > before for before, after in pairwise(heights)]
        for k in range(len(points)):
            is_top = (k == 0 or rises[k - 1]) and (k == len(points) - 1 or not rises[k])
            if moves[k] and (
                np.isclose(moves[k], near).any() or (is_top and heights[k] > optimum.value - opt.scan_gap)
            ):
                yield points[k]


def reset_runaways(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the optimum with runaway parameters reset to their expected magnitudes, one by one and together."""
    opt = options.SEARCH
    layout = objective.layout
    usual, away = np.zeros(len(layout.free_parameters)), np.zeros(len(layout.free_parameters))
    for place, number in enumerate(layout.free_parameters):
        transform, x = layout.transforms[number], float(optimum.x[place])
        away[place], usual[place] = transform.distance_from_expected(x), transform.centre
        if transform.is_unbounded:
            usual[place] = float(np.copysign(transform.inverse(transform.expected_magnitude), x))
    lost = np.flatnonzero(away > opt.runaway_log_distance)
    # Those that run away take others with them, not as far.
    groups = [np.array([place]) for place in lost]
    for least in opt.reset_thresholds if len(lost) else ():
        together = np.flatnonzero(away > least)
        groups += [together] if len(together) > len(groups[-1]) else []
    for group in groups:
        point = optimum.x.copy()
        point[group] = usual[group]
        yield point
        # What suits the data of deviations depends on the parameters.
        hyper = layout.unpack(point)
        length = float(np.exp(np.mean(np.log(hyper.lengthscales)))) if layout.n_processes else 1.0
        with np.errstate(all="ignore"):
            sizes = VarianceTargets.evaluate_at(objective.engine, hyper.theta)
            units = objective.engine.prior.noise.level_scales[: layout.n_noise_levels]
            noise = np.maximum(hyper.noise_std, opt.reset_noise_fraction * units)
            matched = match_variances(objective.engine, layout, sizes, length, noise)
        if matched is not None and np.isfinite(layout.pack(matched)).all():
            yield layout.pack(matched)


def reset_from_plateau(objective: Objective, best: Optimum) -> list[Array]:
    """Return starts with one entry reset that has run away along a plateau, where the gradient vanishes.

    So one of two lags vanishes, and what is left is the best with one lag; or an initial state, while the search is far
    from the end, and does not come back.
    """
    opt = options.SEARCH
    layout, found = objective.layout, list[Array]()
    bounded = [k for k, number in enumerate(layout.free_parameters) if not layout.transforms[number].is_unbounded]
    modes = layout.slices.mode_deviations

    def at(place: int, move: float) -> tuple[float, Array]:
        x = best.x.copy()
        x[place] += move
        with np.errstate(all="ignore"):
            return objective.value(x), x

    for place in [*bounded, *range(modes.start, modes.stop)]:
        for sign in (-1.0, 1.0)[: 1 if place >= modes.start else 2]:
            if not abs(at(place, sign * opt.plateau_probe)[0] - best.value) < opt.plateau_tolerance:
                continue
            distances = np.arange(opt.reset_log_range[0], opt.reset_log_range[1], opt.reset_log_range[0])
            moves = -sign * distances
            if place in bounded:
                own = layout.transforms[layout.free_parameters[place]]
                around = own.inverse(own.expected_magnitude) - float(best.x[place]) + (distances - distances.mean())
                # It may be anywhere by now; what data and equations suggest is where it was expected.
                moves = around if abs(np.median(around)) > distances[-1] else moves
            value, x = max((at(place, move) for move in moves.tolist()), key=lambda pair: pair[0])
            found += [x] if value > best.value + opt.plateau_tolerance else []
            break
    return found


def zero_inactive_disturbances(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which inactive standard deviations are next to zero and at their bound."""
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
            # Nothing has this lengthscale.
            best.at_bound[blocks.disturbance_lengthscales.start + coloured.index(k)] = True
    return best


def _move_if_inactive(objective: Objective, optimum: Optimum, place: int, bound: float) -> Optimum:
    """Return an optimum with one entry moved to its bound, if that changes the objective by next to nothing."""
    x, at_bound = optimum.x.copy(), optimum.at_bound.copy()
    x[place], at_bound[place] = bound, True
    value = objective.value(x)
    is_inactive = value >= optimum.value - options.SEARCH.min_variance_gain
    return replace(optimum, x=x, value=value, at_bound=at_bound) if is_inactive else optimum


def canonicalize_signs(
    objective: Objective, optimum: Optimum, information: Array, symmetries: Sequence[frozenset[str]]
) -> tuple[Optimum, Array]:
    """Return the optimum with the most positive parameters among those that differ in signs, and its curvature.

    A start value that the user has given counts: its sign is preferred, whatever it is.

    Shapes: information (n, n).
    """
    opt = options.SEARCH
    layout = objective.layout
    learned = [layout.names[number] for number in layout.free_parameters]
    wanted = np.array([-1.0 if (objective.parameters[name].start or 0.0) < 0 else 1.0 for name in learned])
    signs = np.sign(optimum.x[: len(learned)])
    best = np.ones(len(learned))
    for size in range(1, min(len(symmetries), opt.max_symmetries) + 1):
        for chosen in combinations(symmetries[: opt.max_symmetries], size):
            flip = np.ones(len(learned))
            for names in chosen:
                flip *= np.array([-1.0 if name in names else 1.0 for name in learned])
            if _sign_key(signs * flip * wanted) > _sign_key(signs * best * wanted):
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
    """Return how many are positive, and then which: what makes one choice of signs better than another."""
    return (int(np.sum(signs > 0)), *(int(sign > 0) for sign in signs))
