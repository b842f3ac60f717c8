"""The search where known inputs drive all that was measured: many cheap simulations, then steps towards the best.

Values of the parameters are drawn around the sizes to expect, delays from a grid; what enters linearly (gains, offsets,
initial states) is solved for at each of them. The most promising ones, on a thinned record, are followed by Levenberg's
steps; what these find is the start of a search of the evidence, on axes along which it changes alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from lodekit.data.observations import TimeSeries
from lodekit.fitting.lbfgs import CONVERGED_MESSAGE, INFEASIBLE_VALUE, Optimum, has_stalled
from lodekit.fitting.objective import Objective
from lodekit.fitting.starts.candidates import ParameterGuess
from lodekit.fitting.starts.variable_projection import ProjectedFit, VariableProjection
from lodekit.fitting.starts.weak_form import build_delay_grid, find_delay_parameters
from lodekit.inference.records import record_engines
from lodekit.prior.prior import Hyperparameters
from lodekit.support.progress import report_best_value, track_progress
from lodekit.system.system import System

Array = NDArray[np.float64]
#: How many rows screening looks at, and the first steps; and the last steps.
_SCREENING_ROWS, _SIMULATION_ROWS = 250, 2000
#: How many values are tried: so many, and so many for each parameter that is not linear, up to that.
_N_SCREENED, _N_SCREENED_PER_PARAMETER, _MAX_SCREENED = 12, 12, 84
#: Where several delays are learned, each is so many places of the grid ahead of the last: they need not be equal.
_DELAY_GRID_OFFSET = 7
#: How many of them are followed at first, and how many of these to the end.
_N_SCREENED_FOLLOWED, _N_SIMULATION_FINALISTS = 6, 2
#: How many steps there are, on the thinned record and on the whole, and what a step has to gain there.
_SCREENING_MAX_STEPS, _SIMULATION_MAX_STEPS, _SCREENING_TOLERANCE, _SIMULATION_TOLERANCE = 12, 40, 0.3, 1e-2
#: Two that end this close to each other have met; so often new values are drawn where none have.
_SIMULATION_AGREEMENT, _MAX_SCREENING_ROUNDS = 0.2, 3
#: One that is this much worse may still have more evidence.
_SIMULATION_RIVAL_GAP = 5.0
#: How far a gain may be changed at once, as a factor.
_MIN_GAIN_FACTOR, _MAX_GAIN_FACTOR = 0.03, 30.0
#: Directions with less curvature than this, relative to the sharpest, are searched as if they had as much.
_PRECONDITIONER_FLOOR = 1e-7
#: The curvature of the evidence in the logarithm of a deviation of modes, and how many steps a search takes.
_MODE_STD_CURVATURE, _PRECONDITIONED_MAX_ITERATIONS = 1.0, 100


def multistart_output_error(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[TimeSeries]],
    guesses: Sequence[ParameterGuess],
    generator: np.random.Generator,
    tolerance: float,
    initial_theta: Array | None = None,
) -> Optimum | None:
    """Return the best optimum of the objective; None where no simulation is finite.

    Shapes: initial_theta (p,).
    """
    engine, layout = objective.engine, objective.layout
    priors = [part.prior for part in record_engines(engine)]
    whole, thin = (
        VariableProjection.from_records(priors, layout, records, most) for most in (_SIMULATION_ROWS, _SCREENING_ROWS)
    )
    given = [guess.theta for guess in guesses if guess.family == "given"]
    if initial_theta is not None:
        found = _continue_from_previous(system, thin, whole, initial_theta, guesses, generator)
    elif given:
        found = [
            end
            for theta in given
            if (
                end := whole.levenberg_marquardt(
                    whole.coordinates.from_parameters(theta), _SIMULATION_MAX_STEPS, _SIMULATION_TOLERANCE
                )
            )
            is not None
        ]
    else:
        found = _screen_and_descend(system, thin, whole, guesses, generator)
    if not found:
        return None
    best = _maximize_from_projection(objective, whole, found[0], tolerance)
    for rival in found[1:2]:
        # Amplitudes and levels may make up for what it lacks, unless it is the same optimum.
        if 2.0 * _SIMULATION_AGREEMENT < rival.deviance - found[0].deviance < _SIMULATION_RIVAL_GAP:
            other = _maximize_from_projection(objective, whole, rival, tolerance)
            best = other if other is not None and (best is None or other.value > best.value) else best
    return best


def _continue_from_previous(
    system: System,
    thin: VariableProjection,
    whole: VariableProjection,
    initial_theta: Array,
    guesses: Sequence[ParameterGuess],
    generator: np.random.Generator,
) -> list[ProjectedFit]:
    """Return where an earlier fit leads, and where others do if they start out better; best first."""
    end = whole.levenberg_marquardt(
        whole.coordinates.from_parameters(initial_theta), _SIMULATION_MAX_STEPS, _SIMULATION_TOLERANCE
    )
    here = None if end is None else thin.evaluate(end.z, end.noise_std, with_jacobian=False)
    starts = _screen_starts(system, thin, guesses, generator, is_first=True)
    best = thin.evaluate(starts[0], None if end is None else end.noise_std, with_jacobian=False) if starts else None
    if end is not None and (best is None or (here is not None and here.deviance <= best.deviance)):
        return [end]
    others = _screen_and_descend(system, thin, whole, guesses, generator)
    return sorted([*([] if end is None else [end]), *others], key=lambda item: item.deviance)


def _screen_and_descend(
    system: System,
    thin: VariableProjection,
    whole: VariableProjection,
    guesses: Sequence[ParameterGuess],
    generator: np.random.Generator,
) -> list[ProjectedFit]:
    """Return where the most promising values lead, best first; new ones are drawn until two have met."""
    ends: list[ProjectedFit] = []
    with track_progress("fitting, simulations") as advance:
        for number in range(_MAX_SCREENING_ROUNDS):
            advance(1, f"round {number + 1} of {_MAX_SCREENING_ROUNDS} at most")
            starts = _screen_starts(system, thin, guesses, generator, is_first=number == 0)
            first: list[ProjectedFit] = []
            for z in starts[:_N_SCREENED_FOLLOWED]:
                end = thin.levenberg_marquardt(z, _SCREENING_MAX_STEPS, _SCREENING_TOLERANCE)
                first = sorted([*first, *([] if end is None else [end])], key=lambda end: end.deviance)
                if (
                    len(first) > _N_SIMULATION_FINALISTS
                    and first[1].deviance < first[0].deviance + _SCREENING_TOLERANCE
                ):
                    break
            for start in first[:_N_SIMULATION_FINALISTS]:
                # One that comes as far as another has met it.
                enough = min((end.deviance + _SIMULATION_AGREEMENT for end in ends), default=-np.inf)
                end = whole.levenberg_marquardt(start.z, _SIMULATION_MAX_STEPS, _SIMULATION_TOLERANCE, enough)
                ends += [] if end is None else [end]
            ends.sort(key=lambda end: end.deviance)
            if len(ends) > 1 and ends[1].deviance < ends[0].deviance + 2.0 * _SIMULATION_AGREEMENT:
                break
    return ends


def _screen_starts(
    system: System,
    thin: VariableProjection,
    guesses: Sequence[ParameterGuess],
    generator: np.random.Generator,
    *,
    is_first: bool,
) -> list[Array]:
    """Return coordinates of values to start from, the most promising first."""
    layout, chart = thin.coordinates.layout, thin.coordinates
    affine = _find_linear_parameters(thin, generator)
    count = min(_N_SCREENED + _N_SCREENED_PER_PARAMETER * int(np.sum(~affine)), _MAX_SCREENED)
    lags = find_delay_parameters(system, layout)
    grid = build_delay_grid(thin.times) if lags else np.zeros(0)
    blind = next((guess.theta for guess in guesses if guess.family == "blind"), np.full(len(layout.names), np.nan))
    drawn = [guess.theta for guess in guesses if guess.family != "blind"] if is_first else []
    drawn += [blind] * count
    found = []
    for attempt, theta in enumerate(drawn):
        filled = np.where(np.isnan(layout.fixed_values), theta, layout.fixed_values)
        for n in layout.free_parameters:
            if np.isnan(filled[n]) and n in lags and len(grid):
                filled[n] = grid[(attempt + lags.index(n) * _DELAY_GRID_OFFSET) % len(grid)]
            elif np.isnan(filled[n]):
                # From the third on, guesses are random.
                filled[n] = layout.draw_start(n, attempt if is_first else 2, generator)
        seen = _solve_linear_parameters(thin, chart.from_parameters(filled), affine)
        if seen is not None:
            found.append(seen)
    found.sort(key=lambda pair: pair[0])
    return [z for _, z in found]


def _find_linear_parameters(thin: VariableProjection, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the learned parameters move neither roots nor delays: gains and offsets."""
    layout, observables = thin.coordinates.layout, thin.observables
    theta = layout.fixed_values.copy()
    for n in layout.free_parameters:
        theta[n] = layout.draw_start(n, 2, generator)
    values = observables.evaluate(theta)
    moves = np.zeros(len(theta), dtype=bool)
    for factor in values.jacobian.factors:
        moves |= factor.reshape(len(theta), -1).any(axis=1)
    if observables.input_response is not None and values.input_response_table is not None:
        drive = observables.input_response.compiled
        moves |= drive.matrices(values.input_response_table)[1].F.reshape(len(theta), -1).any(axis=1)
        moves |= drive.delays(values.input_response_table)[1].any(axis=1)
    return ~moves[layout.free_parameters]


def _solve_linear_parameters(
    thin: VariableProjection, z: Array, is_linear: NDArray[np.bool_]
) -> tuple[float, Array] | None:
    """Return how well a simulation does with the best gains and offsets, and its coordinates with these."""
    here = thin.evaluate(z, with_jacobian=bool(is_linear.any()))
    if here is None or not here.jacobian.size:
        return None if here is None else (here.deviance, z)
    J, rest = here.jacobian[:, is_linear], thin.weighted_residuals(here)
    step = -np.linalg.lstsq(J, rest, rcond=1e-9)[0]
    transforms = list(thin.coordinates.layout.transforms.values())
    moved = z.copy()
    for place, change in zip(np.flatnonzero(is_linear), step.tolist(), strict=True):
        # What is positive is searched by its logarithm: the change of the value itself is what is linear.
        limited = np.log(np.clip(1.0 + change, _MIN_GAIN_FACTOR, _MAX_GAIN_FACTOR))
        moved[place] += change if transforms[place].is_unbounded else limited
    there = thin.evaluate(moved, here.noise_std, with_jacobian=False)
    return (here.deviance, z) if there is None or here.deviance < there.deviance else (there.deviance, moved)


def _maximize_from_projection(
    objective: Objective, whole: VariableProjection, projected: ProjectedFit, tolerance: float
) -> Optimum | None:
    """Return where a search of the objective ends that starts at a simulation, on axes made from its derivatives."""
    prior, layout = objective.engine.prior, objective.layout
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(projected.mode_amplitudes, ends, axis=1) if prior.groups else []
    modes = np.array([max(float(np.sqrt(np.mean(piece**2))), 1e-6) for piece in pieces])
    levels = projected.noise_std * prior.units.scales
    groups = np.array(prior.noise.level_indices)
    noise = np.array([float(np.sqrt(np.mean(levels[groups == g] ** 2))) for g in range(layout.n_noise_levels)])
    theta = whole.coordinates.to_parameters(projected.z)
    hyper = Hyperparameters(theta, np.zeros(0), np.zeros(0), layout.resolve_mode_std(modes, theta), noise)
    x0 = layout.pack(hyper)
    if not np.isfinite(objective.value(x0)):
        return None
    blocks, curvature = layout.slices, np.zeros(layout.size)
    curvature[blocks.mode_deviations] = _MODE_STD_CURVATURE
    counts = whole.counts
    curvature[blocks.noise] = [2.0 * max(int(counts[groups == g].sum()), 1) for g in range(layout.n_noise_levels)]
    H = np.diag(curvature)
    slopes = np.array([layout.transforms[n].derivative(float(x0[i])) for i, n in enumerate(layout.free_parameters)])
    J = projected.jacobian * (slopes / whole.coordinates.derivatives(projected.z))
    # Of averages over many measurements, each counts as many.
    H[blocks.theta, blocks.theta] = J.T @ J * max(objective.engine.size / len(whole.values), 1.0)
    return maximize_lbfgs_preconditioned(objective, x0, H, tolerance)


def _preconditioner(H: Array) -> Array:
    """Return directions as columns, along which a quadratic form changes alike; flat ones are not followed far."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-2))
    if not np.isfinite(H).all():
        return np.diag(np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0))
    sizes, vectors = np.linalg.eigh(H * np.outer(scale, scale))
    return np.asarray(
        scale[:, None] * vectors / np.sqrt(np.maximum(sizes, _PRECONDITIONER_FLOOR * max(float(sizes.max()), 1e-300)))
    )


def maximize_lbfgs_preconditioned(objective: Objective, x0: Array, information: Array, tolerance: float) -> Optimum:
    """Return where quasi-Newton steps end from a start, on axes along which the objective changes alike.

    Shapes: x0 (n,), information (n, n).
    """
    axes = _preconditioner(information)

    def descend(z: Array) -> tuple[float, Array]:
        value, gradient = objective.evaluate(x0 + axes @ z)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -INFEASIBLE_VALUE, np.zeros_like(z)
        return -value, -(axes.T @ gradient)

    values: list[float] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        values.append(-float(intermediate_result.fun))
        report_best_value(objective, objective.name, values[-1])
        if len(values) > 1 and has_stalled(values[-2], values[-1], tolerance):
            raise StopIteration

    options = {"maxiter": _PRECONDITIONED_MAX_ITERATIONS, "maxcor": 30, "ftol": 0.0, "gtol": 1e-6}
    found = minimize(descend, np.zeros(len(x0)), jac=True, method="L-BFGS-B", options=options, callback=watch)
    settled = bool(found.success or "StopIteration" in str(found.message))
    message = CONVERGED_MESSAGE if settled else str(found.message)
    inner = np.zeros(len(x0), dtype=bool)
    return Optimum(x0 + axes @ found.x, -float(found.fun), settled, message, int(found.nfev), inner)
