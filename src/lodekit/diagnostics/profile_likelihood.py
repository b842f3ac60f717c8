"""Profile likelihood of parameters, and objective surfaces over two of them.

One parameter is varied and all others are re-optimised, by the output-error method if known inputs and initial states
determine the measurements, and by L-BFGS-B; a 95 % interval ends where the objective has decreased by half the
chi-squared quantile (Wilks' theorem). Parameters at a bound are moved away from it, because others may depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from lodekit.fitting.global_search import GlobalSearch
from lodekit.fitting.hessian import invert_information, observed_information
from lodekit.fitting.lbfgs import INFEASIBLE_VALUE, Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import fit_others
from lodekit.fitting.parameter_vector import ParameterTransform
from lodekit.support.arguments import Array, Mask
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95


class ObjectiveSurface:
    """The objective minus its value at the optimum, as some entries of the search vector vary.

    optimum: The optimum.
    information: Minus the Hessian of the objective there; (n, n).
    position: Entries of the search vector that vary.
    others: Whether other free entries are re-optimised (``"relearned"``), follow to first order (``"following"``) or
        stay (``"fixed"``).
    """

    def __init__(
        self, objective: Objective, optimum: Optimum, information: Array, position: Sequence[int], others: str
    ) -> None:
        self.objective, self.optimum_point, self.reoptimizes = objective, optimum.x, others == "relearned"
        moving = list(position)
        self.other_index = np.setdiff1d(np.flatnonzero(~optimum.at_bound), moving)
        self.directions = np.zeros((objective.layout.size, len(moving)))
        self.directions[moving] = np.eye(len(moving))
        H = np.where(np.isfinite(information), information, 0.0)
        scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(H)[self.other_index]), 1e-12))
        curvatures, vectors = np.linalg.eigh(H[np.ix_(self.other_index, self.other_index)] * np.outer(scale, scale))
        # Unit steps along these columns change the objective by the same amount. Negative curvatures are usually due
        # to rounding errors; their magnitude is about right.
        sizes = np.abs(curvatures)
        root = scale[:, None] * vectors / np.sqrt(np.maximum(sizes, 1e-8 * sizes.max(initial=1e-300)))
        # The first step of L-BFGS has length one, which would be too far along a flat direction.
        self.covariance_root = root / np.maximum(1.0, np.max(np.abs(root), axis=0, initial=0.0) / _MAX_DISTANCE)
        if others != "fixed":
            # The optimum of the quadratic approximation, given the varied entries.
            self.directions[self.other_index] = -root @ (root.T @ H[self.other_index][:, moving])
        self.max_value = self.objective.value(self.optimum_point)

    def relative_value(self, x: Array) -> float:
        """Return the objective at a point minus that at the optimum; minus infinity if it is not finite.

        Shapes: x (n,).
        """
        value = self.objective.value(x)
        return value - self.max_value if np.isfinite(value) else -np.inf

    def reoptimize(self, x: Array) -> Array:
        """Return a point with all other entries re-optimised if ``others="relearned"``; the point itself otherwise.

        Shapes: x (n,).
        """
        if not self.reoptimizes or not len(self.other_index):
            return x
        x = fit_others(self.objective, x, self.other_index)
        if self.objective.regression is not None and self.relative_value(x) < -_MAX_POLISHED_DROP:
            return x

        def descend(z: Array) -> tuple[float, Array]:
            full = x.copy()
            full[self.other_index] += self.covariance_root @ z
            value, slope = self.objective.evaluate(full)
            gradient = self.covariance_root.T @ slope[self.other_index]
            finite = np.isfinite(value) and np.isfinite(gradient).all()
            return (-value, -gradient) if finite else (-INFEASIBLE_VALUE, np.zeros(len(z)))

        # Next to a discontinuity, line searches would use most evaluations without a gain.
        options = {"maxiter": 25, "maxfun": 60, "maxls": 10, "ftol": 1e-8}
        if self.objective.regression is not None:
            options |= {"maxiter": 5, "maxfun": 8}
        best = x.copy()
        found = minimize(descend, np.zeros(len(self.other_index)), jac=True, method="L-BFGS-B", options=options)
        best[self.other_index] += self.covariance_root @ found.x
        return best

    def evaluate_moves(self, moves: Array) -> Array:
        """Return the relative objective at many moves of the varied entries, shape (m,).

        Shapes: moves (m, places).
        """
        with np.errstate(all="ignore"):
            points = (self.reoptimize(self.optimum_point + self.directions @ move) for move in moves)
            return np.array([self.relative_value(point) for point in points])

    def profile_curve(self, reach: float, points: int) -> tuple[Array, Array]:
        """Return moves of one parameter to either side, ascending, and the relative objective there.

        Each point starts from the previous one; a curve ends early if the objective has decreased by 7 nats.
        """
        longest = 2.0 * reach / (points - 1)
        found = {0.0: 0.0}
        with np.errstate(all="ignore"):
            for sign in (-1.0, 1.0):
                x, at, height, step = self.optimum_point, 0.0, 0.0, longest
                while at < reach * (1.0 - 1e-9) and height > -7.0:
                    step = min(step, reach - at)
                    trial = self.reoptimize(x + sign * step * self.directions[:, 0])
                    new = self.relative_value(trial)
                    # A steep drop is approached in small steps, so that the figure shows where it is.
                    if height - new > 3.0 and step > longest / 12:
                        step /= 2.0
                        continue
                    x, at, height, step = trial, at + step, new, min(2.0 * step, longest)
                    found[sign * at] = height
        moves = np.array(sorted(found))
        return moves, np.array([found[move] for move in moves.tolist()])


#: Points with a lower objective are not improved further after the output-error method.
_MAX_POLISHED_DROP = 20.0
#: Points of the search, and the objective there relative to the optimum.
ProfilePath = list[tuple[Array, float]]
#: A 95 % interval ends where the objective has decreased by this: half the 95 % quantile of chi-squared with one degree
#: of freedom.
CHI2_95_HALF = 1.9207
#: Bounded parameters are moved by this distance on the search scale (a factor of 20), in steps of this length, and in
#: longer steps beyond.
_MAX_DISTANCE, _STEP_SIZE, _LONG_STEP_SIZE = 3.0, 0.75, 1.5
#: Unbounded parameters are moved by these multiples of their magnitude.
_UNBOUNDED_STEP_SIZES = (0.3, 1.0, 3.0, 10.0)


def profile_likelihood(
    objective: Objective, optimum: Optimum, information: Array, position: int
) -> tuple[tuple[float, float], tuple[bool, bool], tuple[ProfilePath, ProfilePath]]:
    """Return the 95 % interval of one parameter, whether the profile falls on each side, and the profiles there.

    An end is the bound of the parameter if the profile does not fall.

    Shapes: information (n, n).
    """
    transform = objective.layout.transforms[objective.layout.free_parameters[position]]
    land = ObjectiveSurface(objective, optimum, information, [position], "relearned")
    guess = _guess_edge(information, ~optimum.at_bound, position)
    with np.errstate(all="ignore"):
        paths: tuple[ProfilePath, ProfilePath] = ([(land.optimum_point, 0.0)], [(land.optimum_point, 0.0)])
        falls = [_bracket_edge(land, transform, position, sign, paths[sign > 0]) for sign in (-1, 1)]
        ends = [
            fall and _locate_edge(land, position, *fall, guess, path) for fall, path in zip(falls, paths, strict=True)
        ]
        for path in paths:
            path[:] = [point for point in path if np.isfinite(point[1])]
            path.sort(key=lambda point: abs(float(point[0][position] - optimum.x[position])))
    low = transform.low if ends[0] is None else transform.forward(ends[0])
    high = transform.high if ends[1] is None else transform.forward(ends[1])
    return (low, high), (ends[0] is not None, ends[1] is not None), paths


#: One side of a profile: a function from the square root of twice the decrease of the objective to the end of the
#: interval, in the user's units; whether the interval is unbounded on this side; and the points of the profile.
ProfileSide = tuple[Callable[[float], float], bool, ProfilePath]


def profile_interval(
    objective: Objective, optimum: Optimum, information: Array, position: int, std_error: float, target_root: float
) -> tuple[ProfileSide, ProfileSide]:
    """Return the profile below and above an estimate, up to the target or until the interval is unbounded.

    Two or three points on either side are usually sufficient; each takes some 15 to 60 evaluations.

    Shapes: information (n, n).
    """
    transform = objective.layout.transforms[objective.layout.free_parameters[position]]
    land = ObjectiveSurface(objective, optimum, information, [position], "relearned")
    centre = float(optimum.x[position])
    value = transform.forward(centre)
    unit = max(abs(value), transform.expected_magnitude)

    def side(sign: int, limit: float) -> ProfileSide:
        def at(move: float) -> float:
            return transform.inverse(value + sign * move * unit) if transform.is_unbounded else centre + sign * move

        last = _step_targets(transform, centre, sign)[-1]
        far = transform.distance(value, transform.forward(last))
        path: ProfilePath = [(land.optimum_point, 0.0)]
        with np.errstate(all="ignore"):
            points = trace_profile(land, position, at, std_error, target_root, far, path)
        roots, moves = np.array(points).T
        is_unbounded = bool(roots[-1] < target_root)

        def endpoint(root_drop: float) -> float:
            if is_unbounded and root_drop > roots[-1]:
                return limit
            return transform.forward(at(_interpolate_move(roots, moves, std_error, root_drop)))

        return endpoint, is_unbounded, path

    return side(-1, transform.low), side(1, transform.high)


def _interpolate_move(roots: Array, moves: Array, std_error: float, root_drop: float) -> float:
    """Return the move of a parameter at which the objective has decreased by ``root_drop**2 / 2``.

    The first point is the estimate; std_error is the slope of the moves there. Shapes: roots, moves (n,).
    """
    if root_drop > roots[-1]:
        rate = (moves[-1] - moves[-2]) / max(roots[-1] - roots[-2], 1e-300)
        return float(moves[-1] + rate * (root_drop - roots[-1]))
    if root_drop < roots[1]:
        # Next to the estimate, a parabola with the known slope there, unless it is not monotonic.
        bend = float((moves[1] - std_error * roots[1]) / roots[1] ** 2)
        if std_error + 2.0 * bend * roots[1] > 0.0:
            return std_error * root_drop + bend * root_drop**2
    # Imported here, since most fits need no profiles.
    from scipy.interpolate import PchipInterpolator

    return float(PchipInterpolator(roots, moves)(root_drop))


#: Largest distance of the two points around the end of an interval, as a fraction of the target root.
_MAX_ROOT_STEP = 0.4


def trace_profile(
    surface: ObjectiveSurface,
    position: int,
    at: Callable[[float], float],
    std_error: float,
    target_root: float,
    max_move: float,
    path: ProfilePath,
) -> list[tuple[float, float]]:
    """Return square roots of twice the decrease, and moves to one side, up to the target root or the largest move.

    `at` converts moves to points of the search; `std_error` is the initial ratio of move and root. Points are added to
    the path.
    """
    found, x = [(0.0, 0.0)], surface.optimum_point
    outside, beyond = math.inf, (x, -math.inf)
    for _ in range(16):
        reached, moved = found[-1]
        if reached >= target_root or moved >= max_move:
            break
        step = min(
            std_error * max(1.05 * target_root - reached, 0.2 * target_root),
            _STEP_SIZE if moved < _MAX_DISTANCE else _LONG_STEP_SIZE,
            max_move - moved,
        )
        if outside - moved < 0.05 * outside:
            break
        step = min(step, 0.7 * (outside - moved))
        # Far beyond the interval, the re-optimisation may have left the ridge: it is repeated once.
        for retry in (False, True):
            point = profile_point(surface, x, position, at(moved + step), path, retry=retry)
            height = surface.relative_value(point)
            new = float(np.sqrt(2.0 * max(-height, 0.0)))
            if not new > 1.3 * target_root:
                break
        if new > 1.3 * target_root:
            outside, beyond = moved + step, (point, height)
            std_error = max(step / (new - reached), 0.05 * step / target_root) if np.isfinite(new) else 0.2 * std_error
            continue
        std_error = float(np.clip(step / max(new - reached, 1e-6), 0.3 * std_error, 3.0 * std_error))
        x = point
        path.append((x, height))
        found.append((max(new, reached + 1e-9), moved + step))
    if len(found) > 1 and found[-1][0] >= target_root and found[-1][0] - found[-2][0] > _MAX_ROOT_STEP * target_root:
        # The end is between two distant points: another one is added between them.
        (below, before), (above, after) = found[-2:]
        move = before + (after - before) * (target_root - below) / (above - below)
        point = profile_point(surface, path[-2][0], position, at(move), [])
        height = surface.relative_value(point)
        new = float(np.sqrt(2.0 * max(-height, 0.0)))
        if below < new < above:
            found.insert(-1, (new, move))
            path.insert(-1, (point, height))
    # If the objective is not finite there, the profile is not known to fall.
    if found[-1][0] < target_root and np.isfinite(beyond[1]):
        found.append((target_root, outside))
        path.append(beyond)
    return found


def _guess_edge(information: Array, free: Mask, position: int) -> float:
    """Return a rough half-width of the interval of a parameter from its information; zero if unknown."""
    inner = np.flatnonzero(free)
    part = information[np.ix_(inner, inner)]
    if position not in inner or not np.isfinite(part).all():
        return 0.0
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    place = int(np.flatnonzero(inner == position)[0])
    spread = float(np.sqrt(np.sum(vectors[place] ** 2 / np.maximum(np.abs(eigenvalues), 1e-12))))
    return 2.0 * min(spread * float(scale[place]), _MAX_DISTANCE)


def _step_targets(transform: ParameterTransform, start: float, sign: int) -> list[float]:
    """Return the values, on the search scale, to which a parameter is moved on one side."""
    value = transform.forward(start)
    if not transform.is_unbounded:
        found = [start + sign * float(step) for step in np.arange(_STEP_SIZE, _MAX_DISTANCE + 1e-9, _STEP_SIZE)]
        if sign > 0 and transform.low == 0.0 and value < transform.expected_magnitude and np.isinf(transform.high):
            # The profile of a parameter near zero may fall at its expected magnitude only; the ridge is curved.
            last = transform.inverse(_UNBOUNDED_STEP_SIZES[-1] * transform.expected_magnitude)
            found += np.linspace(found[-1], last, int(np.ceil((last - found[-1]) / _LONG_STEP_SIZE)) + 1)[1:].tolist()
        return found
    size = max(abs(value), transform.expected_magnitude)
    return [transform.inverse(value + sign * share * size) for share in _UNBOUNDED_STEP_SIZES]


def _bracket_edge(
    surface: ObjectiveSurface, transform: ParameterTransform, position: int, sign: int, path: ProfilePath
) -> tuple[Array, float] | None:
    """Return the last point before the profile falls on one side, and the step after which it has; None if it does not.

    Points are added to the path.
    """
    x = surface.optimum_point
    for target in _step_targets(transform, float(surface.optimum_point[position]), sign):
        found = profile_point(surface, x, position, target, path)
        path.append((found, surface.relative_value(found)))
        if path[-1][1] < -CHI2_95_HALF:
            return x, target - float(x[position])
        x = found
    return None


def _locate_edge(
    surface: ObjectiveSurface, position: int, x: Array, step: float, guess: float, path: ProfilePath
) -> float | None:
    """Return the position, on the search scale, at which the profile falls between a point and a step from there.

    None if the objective is not finite beyond it. Points are added to the path.
    """
    start, sign = float(x[position]), np.sign(step)
    inside, outside, is_known = 0.0, abs(step), bool(np.isfinite(path[-1][1]))
    middle = guess if x is surface.optimum_point else 0.5 * outside
    while outside > 1e-10:
        if not inside < middle < outside:
            # The order of magnitude of the distance is unknown: use the geometric mean.
            middle = float(np.sqrt(inside * outside)) if inside else 0.1 * outside
        point = profile_point(surface, x, position, start + sign * middle, [])
        height = surface.relative_value(point)
        path.append((point, height))
        if height < -CHI2_95_HALF:
            # The profile falls with the square of a move, or faster: this estimates the edge.
            share = max(1e-4, float(np.sqrt(-CHI2_95_HALF / height))) if np.isfinite(height) else 0.1
            outside, middle, is_known = middle, min(0.3, share) * middle, bool(np.isfinite(height))
        else:
            inside, middle = middle, 3.0 * middle
        # The endpoint is bracketed within a factor of 2.
        if inside and outside / inside < (2.0 if is_known else 1.1):
            break
    return float(start + sign * outside) if is_known else None


def profile_point(
    surface: ObjectiveSurface, x: Array, position: int, target: float, path: ProfilePath, *, retry: bool = True
) -> Array:
    """Return a point with one parameter moved and all others re-optimised from the best of several predictions.

    The last two points of the path give a secant predictor along the ridge.
    """
    length = target - float(x[position])
    along, alone = length * surface.directions[:, 0], length * np.eye(len(x))[position]
    starts = [x + np.clip(move, -_MAX_DISTANCE, _MAX_DISTANCE) for move in (along, alone)]
    starts.append(_predict_linearly(surface, x, position, target))
    if len(path) > 1 and (passed := float(path[-1][0][position] - path[-2][0][position])):
        starts.append(x + length / passed * (path[-1][0] - path[-2][0]))
    for start in starts:
        start[position] = target
    found = surface.reoptimize(max(starts, key=surface.relative_value))
    height = surface.relative_value(found)
    # Near the end of the interval, continue as long as the objective improves: the ridge may be found again.
    while retry and -CHI2_95_HALF > height > -50.0 * CHI2_95_HALF:
        found, before = surface.reoptimize(found), height
        height = surface.relative_value(found)
        retry = height > before + 0.02
    return found


def _predict_linearly(surface: ObjectiveSurface, x: Array, position: int, target: float) -> Array:
    """Return a prediction of all parameters along a straight line, as if a sum of parameters were determined."""
    layout, found, optimum = surface.objective.layout, x.copy(), surface.optimum_point
    transforms = [layout.transforms[number] for number in layout.free_parameters]
    own = transforms[position]
    slope = (own.forward(target) - own.forward(float(x[position]))) / own.derivative(float(optimum[position]))
    for k, transform in enumerate(transforms):
        value, centre = transform.forward(float(x[k])), float(optimum[k])
        moved = value + slope * surface.directions[k, 0] * transform.derivative(centre)
        inside = transform.low < moved < transform.high
        # Beyond a bound, move towards it by the longest step.
        found[k] = transform.inverse(moved) if inside else x[k] + math.copysign(_MAX_DISTANCE, moved - value)
    return found


def has_equivalent_beyond_infinity(
    objective: Objective, optimum: Optimum, information: Array, position: int, x: Array
) -> bool:
    """Return whether a large parameter fits about as well with the other sign, as if its reciprocal crossed zero.

    Shapes: information (n, n), x (n,).
    """
    transforms = enumerate(objective.layout.transforms.values())
    large = [
        k for k, transform in transforms
        if transform.is_unbounded and abs(transform.forward(float(x[k]))) > _MAX_DISTANCE * transform.expected_magnitude
    ]  # fmt: skip
    if position not in large:
        return False
    # Up to three other large parameters may change their signs with it; all combinations are tried.
    beside = [k for k in large if k != position][:3]
    choices = [flipped for size in range(len(beside) + 1) for flipped in combinations(beside, size)]
    others = [np.where(np.isin(np.arange(len(x)), [position, *flipped]), -x, x) for flipped in choices]
    with np.errstate(all="ignore"):
        surface = ObjectiveSurface(objective, optimum, information, [position], "relearned")
        best = max(others, key=surface.relative_value)
        return surface.relative_value(surface.reoptimize(best)) > -CHI2_95_HALF


#: Moves of a parameter from other optima, in half-widths of its interval there, which may be known roughly only.
_FALL_STEPS = tuple(1.5**k for k in range(12))
#: Number of bisections of the last step.
_N_BISECTIONS = 3


def find_fall(
    surface: ObjectiveSurface, position: int, places: Sequence[tuple[Array, float]], edge: float, sign: int
) -> float:
    """Return the end of an interval on one side, on the search scale, extended to include other optima.

    From each optimum, given with the half-width of its interval, the parameter is moved until the profile falls, unless
    this cannot lead beyond the known end.
    """
    for point, far in sorted(places, key=lambda place: -sign * float(place[0][position])):
        x, start = point, float(point[position])
        target = start
        steps = _FALL_STEPS if 0.0 < far < np.inf and sign * start + _FALL_STEPS[4] * far > sign * edge else ()
        with np.errstate(all="ignore"):
            for share in steps:
                last, target = target, start + share * sign * far
                moved = profile_point(surface, x, position, target, [])
                if surface.relative_value(moved) < -CHI2_95_HALF:
                    break
                x = moved
            for _ in range(_N_BISECTIONS if steps and sign * target > sign * edge else 0):
                middle = 0.5 * (last + target)
                moved = profile_point(surface, x, position, middle, [])
                if surface.relative_value(moved) < -CHI2_95_HALF:
                    target = middle
                else:
                    last, x = middle, moved
        edge = sign * max(sign * edge, sign * target)
    return edge


#: Share of the random points of a global search from which profiles are continued.
_CONTINUED_SHARE = 0.15


def continue_profiles(
    objective: Objective, optimum: Optimum, information: Array, paths: Sequence[tuple[int, ProfilePath]]
) -> list[tuple[int, ProfilePath]]:
    """Return profiles continued beyond their ends, with their positions.

    A profile can have several branches, or rise again after it has fallen. Points of the profiles of other parameters
    may lead there, and so does a global search with the parameter held beyond the end.

    Shapes: information (n, n).
    """
    found, search = list[tuple[int, ProfilePath]](), GlobalSearch.around(objective, optimum.x)
    for k in sorted({place for place, _ in paths}):
        mine = [path for place, path in paths if place == k]
        own = [x[k] for path in mine for x, _ in _points_above_drop(path, CHI2_95_HALF)]
        # Nothing is beyond a side on which the profile does not fall.
        open_ends = [path[-1][0][k] - optimum.x[k] for path in mine if path[-1][1] >= -CHI2_95_HALF]
        others = [
            points
            for number, path in paths
            if number != k
            if (points := [x for x, h in path if h > -2.0 * CHI2_95_HALF])
        ]
        surface = ObjectiveSurface(objective, optimum, information, [k], "relearned")
        for sign in (-1, 1):
            if any(sign * end > 0.0 for end in open_ends):
                continue
            edge = max(sign * value for value in own)
            # With this parameter held, points of other profiles may rise. Intervals are located to 5 %.
            beyond = edge + 0.05 * (edge - sign * float(optimum.x[k]))
            places = [max(points, key=lambda point: sign * point[k]).copy() for points in others]
            for place in places:
                place[k] = sign * max(sign * float(place[k]), beyond)
            places = sorted(places, key=surface.relative_value)[-2:]
            if search is not None:
                places += _search_beyond(search, optimum, k, sign * beyond, surface)
            found += [(k, path) for place in places if len(path := _continue_profile(surface, place, k, sign)) > 1]
    return found


def _search_beyond(
    search: GlobalSearch, optimum: Optimum, position: int, target: float, surface: ObjectiveSurface
) -> list[Array]:
    """Return the best distinct points of global searches with one parameter held at a value and farther away."""
    far, found = math.copysign(_MAX_DISTANCE, target - float(optimum.x[position])), list[Array]()
    held = {k: float(optimum.x[k]) for k in range(len(search.low)) if k not in surface.other_index}
    for there in (target, target + far):
        ends = search.find_points(optimum.x, 2.0 * CHI2_95_HALF, held | {position: there}, _CONTINUED_SHARE)
        found += list(ends[:1])
    return found


def _continue_profile(surface: ObjectiveSurface, x: Array, position: int, sign: int) -> ProfilePath:
    """Return a profile from a point outwards until it has fallen."""
    start, centre, path = float(x[position]), float(surface.optimum_point[position]), ProfilePath()
    transform = surface.objective.layout.transforms[surface.objective.layout.free_parameters[position]]
    steps = [start + share * (start - centre) for share in (0.0, 0.25, 0.75)]
    for target in sorted([*steps, *_step_targets(transform, start, sign)], reverse=sign < 0):
        x = profile_point(surface, x, position, target, path)
        height = surface.relative_value(x)
        path += [(x, height)] if np.isfinite(height) else []
        if height < -CHI2_95_HALF:
            break
    return path


#: An interval: the corresponding quantile of the normal distribution, and both ends.
IntervalRung = tuple[float, float, float]
#: The quantiles of 50, 90, 95, 99 and 99.9 % intervals.
_NORMAL_QUANTILES = (0.6744897501960817, 1.6448536269514722, NORMAL_QUANTILE_95, 2.5758293035489004, 3.2905267314919255)
#: Distances from a bound to which a parameter is moved, relative to its expected magnitude.
_BOUND_DISTANCES = np.geomspace(1e-3, 10.0, 13)


def profile_from_bounds(
    objective: Objective, optimum: Optimum, information: Array, extra_paths: Sequence[tuple[int, ProfilePath]] = ()
) -> dict[str, tuple[IntervalRung, ...]]:
    """Return intervals of parameters, by name, over all plausible values of the parameters at their bounds.

    The Hessian treats parameters at a bound as known. If the data identify only the sum of two masses and one of them
    is estimated as zero, the other one would seem as certain as the sum. Here the parameter is moved away from its
    bound, with all others re-optimised, until the objective has fallen; at each point, the intervals of the others use
    the remaining decrease. The same holds for parameters that may be close to zero: there the objective is flat on the
    search scale, so the Hessian shows no correlation with others. Extra paths are given with the position of the varied
    parameter, on which the standard errors of others are conditioned. Empty if there are no paths.

    Shapes: information (n, n).
    """
    layout, free = objective.layout, list(enumerate(objective.layout.free_parameters))
    # An unbounded parameter at a bound is either at zero or at the limit of the search.
    far = [layout.transforms[n].is_unbounded and abs(optimum.x[k]) > 1.0 for k, n in free]
    stuck = [k for k, _ in free if optimum.at_bound[k] and not far[k]]
    inner = [k for k, _ in free if not optimum.at_bound[k]]
    covariance = invert_information(information, ~optimum.at_bound)

    def conditional_errors(place: int | None) -> Array:
        variances = np.diag(covariance).copy()
        if place is not None and np.isfinite(covariance[place, place]) and covariance[place, place] > 0.0:
            variances -= covariance[place] ** 2 / covariance[place, place]
        # Parameters without a finite standard error have profiles.
        return np.sqrt(np.maximum(np.where(np.isfinite(variances), variances, 0.0), 0.0))[inner]

    if not (stuck or extra_paths) or not inner:
        return {}
    with np.errstate(all="ignore"):
        surfaces = [(k, ObjectiveSurface(objective, optimum, information, [k], "relearned")) for k in stuck]
        paths = [(conditional_errors(None), _path_from_bound(surface, k)) for k, surface in surfaces]
        paths += [(conditional_errors(None), _path_beyond_limit(surface, k)) for k, surface in surfaces]
    # Profiles replace the Hessian.
    is_curvature = ~np.isin(inner, [k for k, _ in extra_paths])
    wald = is_curvature * conditional_errors(None)
    paths += [
        (is_curvature * conditional_errors(k), [(x, min(height, 0.0)) for x, height in path]) for k, path in extra_paths
    ]

    def hull(paths: Sequence[tuple[Array, ProfilePath]], deviate: float) -> tuple[Array, Array]:
        """Return the smallest and largest values, on the search scale, over Wald intervals and all paths."""
        fall = 0.5 * deviate**2
        low, high = optimum.x[inner] - deviate * wald, optimum.x[inner] + deviate * wald
        for errors, (x, height) in ((own, point) for own, path in paths for point in _points_above_drop(path, fall)):
            reach = np.sqrt(2.0 * max(fall + height, 0.0)) * errors
            low, high = np.minimum(low, x[inner] - reach), np.maximum(high, x[inner] + reach)
        return low, high

    # If the objective has not fallen at the end of a path, the intervals of parameters that have left their interval
    # there, or are less determined there, are unbounded.
    low, high = hull([each for each in paths if each[1][-1][1] < -CHI2_95_HALF], NORMAL_QUANTILE_95)
    ends = np.zeros((0, len(inner)))
    places = [*stuck, *stuck, *(k for k, _ in extra_paths)]
    for place, (x, height) in zip(places, (path[-1] for _, path in paths), strict=True):
        if height >= -CHI2_95_HALF:
            is_free = ~optimum.at_bound & (np.arange(layout.size) != place)
            variances = np.diag(invert_information(observed_information(objective, x), is_free))[inner]
            reach = np.sqrt(2.0 * (CHI2_95_HALF + height) * np.maximum(variances, 0.0))
            ends = np.vstack([ends, x[inner] - reach, x[inner] + reach])
    # Intervals are located to 5 %.
    is_open = [(outside > 0.05 * (high - low)).any(axis=0) for outside in (low - ends, ends - high)]
    found: dict[str, list[IntervalRung]] = {layout.names[layout.free_parameters[k]]: [] for k in inner}
    for deviate in _NORMAL_QUANTILES:
        low, high = hull(paths, deviate)
        low[is_open[0]], high[is_open[1]] = -np.inf, np.inf
        for k, bottom, top in zip(inner, low.tolist(), high.tolist(), strict=True):
            transform = layout.transforms[layout.free_parameters[k]]
            found[layout.names[layout.free_parameters[k]]].append(
                (deviate, transform.forward(bottom), transform.forward(top))
            )
    return {name: tuple(rungs) for name, rungs in found.items()}


def _points_above_drop(path: ProfilePath, drop: float) -> Iterator[tuple[Array, float]]:
    """Yield points of a path and their relative objective, up to the point where it has decreased by `drop`."""
    before: tuple[Array, float] | None = None
    for x, height in path:
        if height >= -drop:
            yield x, height
            before = x, height
        elif before is not None:
            # The objective decreases about with the square of a move.
            inside, outside = np.sqrt(-before[1]), np.sqrt(-height)
            share = (np.sqrt(drop) - inside) / (outside - inside) if np.isfinite(outside) else 0.0
            yield before[0] + share * (x - before[0]), -drop
            return


def _path_beyond_limit(surface: ObjectiveSurface, position: int) -> ProfilePath:
    """Return the optimum, and a point at which a positive parameter is moved on towards zero or infinity.

    Parameters that are determined relative to this one follow it.
    """
    transform = surface.objective.layout.transforms[surface.objective.layout.free_parameters[position]]
    value = transform.forward(float(surface.optimum_point[position]))
    path: ProfilePath = [(surface.optimum_point, 0.0)]
    if transform.low == 0.0 and math.isinf(transform.high):
        sign = 1.0 if value > transform.expected_magnitude else -1.0
        point = surface.reoptimize(surface.optimum_point + sign * _STEP_SIZE * surface.directions[:, 0])
        path.append((point, min(surface.relative_value(point), 0.0)))
    return path


def _path_from_bound(surface: ObjectiveSurface, position: int) -> ProfilePath:
    """Return points with one parameter moved away from its bound until the objective falls, with its values."""
    transform = surface.objective.layout.transforms[surface.objective.layout.free_parameters[position]]
    start = transform.forward(float(surface.optimum_point[position]))
    bound, sign = transform.nearest_bound(start)
    room = 0.5 * (transform.high - transform.low)

    def shifted(x: Array, share: float) -> tuple[Array, float]:
        target = transform.inverse(bound + sign * min(share * transform.expected_magnitude, room))
        point = x.copy()
        point[position] = target
        # Parameters that are determined relative to this one follow it, over many orders of magnitude near the bound.
        beside = x + (target - float(x[position])) * surface.directions[:, 0]
        point = surface.reoptimize(max((point, beside), key=surface.relative_value))
        return point, min(surface.relative_value(point), 0.0)

    def between(first: float, last: float, x: Array) -> Iterator[tuple[float, Array, float]]:
        """Yield points around the end of a 95 % interval, by bisection."""
        for _ in range(3):
            middle = 0.5 * (first + last)
            point, height = shifted(x, middle)
            yield middle, point, height
            first, last, x = (middle, last, point) if height >= -CHI2_95_HALF else (first, middle, x)

    found = [(0.0, surface.optimum_point, 0.0)]
    for share in _BOUND_DISTANCES.tolist():
        point, height = shifted(found[-1][1], share)
        if found[-1][2] >= -CHI2_95_HALF > height:
            found += between(found[-1][0], share, found[-1][1])
        found.append((share, point, height))
        if height < -0.5 * _NORMAL_QUANTILES[-1] ** 2:
            break
    return [(point, height) for _, point, height in sorted(found, key=lambda item: item[0])]
