"""Diagnosis of a fit: convergence, identifiability, residual tests and comparison with a null model.

A search has failed if it did not converge, ran into a search limit, or ended clearly below smooth curves that obey no
equation (the null model). Parameters that the data do not identify are a separate finding.

Null model of a fit: the log evidence of smooth Gaussian processes that obey no equation, one per observable.

Correct equations are at least as likely. The noise model is the same as in the fit. A grid over lengthscales,
amplitudes and noise levels replaces a search, so the null model has no local optima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.noise import NoiseModel
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, ObservableStatistics, with_empty_series
from lodekit.diagnostics.equivalent_parameters import AlternativeOptimum, find_alternative_optima
from lodekit.diagnostics.identifiability import (
    FittedCurves,
    IdentifiabilityResult,
    assess_alternatives,
    assess_identifiability,
    assess_structure,
    relative_standard_errors,
)
from lodekit.diagnostics.residual_tests import (
    SIGNIFICANCE_LEVEL,
    InnovationSample,
    ResidualCheck,
    ResidualSeries,
    WhitenessTest,
    check_residuals,
    compute_residuals,
)
from lodekit.fitting.lbfgs import UNDEFINED_MESSAGE, Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.scaling import time_gaps
from lodekit.fitting.setup import StructuralIdentifiability
from lodekit.fitting.starts.input_output import parameters_occurring
from lodekit.inference.engine import EngineFactory, Posterior
from lodekit.inference.innovations import (
    BatchedPosterior,
    InnovationSequence,
    compute_innovations,
    split_into_segments,
    uses_kalman_filter,
)
from lodekit.prior.disturbances import WHITE_NOISE
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Prior
from lodekit.support.text import join_list
from lodekit.system.system import System
from lodekit.uncertainty.estimates import NOT_IDENTIFIED_MESSAGE

Array = NDArray[np.float64]


def is_undersampled(lengthscales: Array, times: Sequence[Array]) -> bool:
    """Return whether all lengthscales are shorter than about one sampling interval.

    The prior then determines the lengthscale and every derivative.
    """
    gaps = time_gaps(times)
    # At this spacing, millionths of the process variance lie above the Nyquist frequency.
    return bool(len(gaps) and len(lengthscales) and float(np.max(lengthscales)) < 1.5 * float(np.median(gaps)))


def find_undersampled_parameters(system: System, measured: Sequence[str]) -> list[str]:
    """Return the parameters of equations with an unmeasured channel or derivative, in order."""
    operator, found = system.operator, set()
    open_equations = {i for i, j, k, _ in operator.terms() if system.channels[j] + "'" * k not in measured}
    for i, _, _, value in operator.terms():
        if i in open_equations:
            found |= parameters_occurring(operator.ring, [value.numerator, value.denominator])
    return [name for number, name in enumerate(system.parameters) if number in found]


@dataclass(frozen=True)
class DiagnosticData:
    """All that a diagnosis looks at.

    information: Minus the Hessian of the objective at the optimum, from which errors come; (n, n).
    posterior: At the optimum.
    noise_std_of: From an observable to the standard deviation of its noise.
    log_evidence_on: From measurements to their log evidence at the optimum.
    factory: The kind of engine.
    records: The same of each of several records, by name; empty where there is one.
    last_innovations: The innovations, if the measurements are the last batch of a record on disk.
    """

    system: System
    objective: Objective
    optimum: Optimum
    information: NDArray[np.float64]
    posterior: Posterior
    measurements: Measurements
    noise_std_of: Callable[[str], float]
    log_evidence_on: Callable[[Measurements], float]
    factory: EngineFactory
    records: Mapping[str, DiagnosticData] = field(default_factory=dict)
    last_innovations: InnovationSequence | None = None

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.objective.engine.prior

    @cached_property
    def fitted_curves(self) -> list[FittedCurves]:
        """The fitted curves of each record."""
        if self.records:
            return [curves for part in self.records.values() for curves in part.fitted_curves]
        kept, theta = self.measurements, self.objective.layout.unpack(self.optimum.x).theta
        return [FittedCurves(self.system, self.prior, self.posterior, theta, kept.window, kept.names)]

    @property
    def times(self) -> list[NDArray[np.float64]]:
        """All times of each record; none where they are not in memory."""
        if self.records:
            return [times for part in self.records.values() for times in part.times]
        series = self.measurements.series
        return [np.concatenate([item.times for item in series])] if series else []

    @property
    def is_noise_free(self) -> bool:
        """Whether next to nothing is left to noise, and the measurements do not tell what is between them."""
        # A smaller ratio of noise to data is rounding.
        statistics, noise_std = self.measurements.observable_statistics, self.noise_std_of
        if any(noise_std(each.observable) > 1e-5 * each.std for each in statistics):
            return False
        scaled = self.objective.layout.unpack(self.optimum.x).lengthscales
        lengthscales = np.array([self.prior.units.unscale_durations(float(each)) for each in scaled])
        return is_undersampled(lengthscales, self.times)

    def residual_checks(self) -> tuple[ResidualCheck, ...]:
        """Return what the residuals say; of sums over measurements only the share of the variance is known.

        Of rows on disk the last ones are looked at.
        """
        if self.records:
            found = ((name, part.residual_checks()) for name, part in self.records.items())
            return tuple(replace(check, record=name) for name, checks in found for check in checks)
        if self.measurements.sufficient_statistics is not None:
            last = self.last_chunk
            known = {} if last is None else {check.name: check for check in last.residual_checks()}
            return tuple(
                self._check_from_statistics(each, known.get(each.observable))
                for each in self.measurements.observable_statistics
            )
        series, inputs, white = self.measurements.series, self.measurements.inputs, self.white_disturbances
        level, noise_std = SIGNIFICANCE_LEVEL / max(len(series), 1), self.noise_std_of
        return tuple(
            replace(check_residuals(item, self.residuals(item), noise_std(item.observable), inputs, level), white=white)
            for item in series
        )

    @property
    def white_disturbances(self) -> tuple[str, ...]:
        """Disturbances of white noise, without those that are best at zero."""
        own, stds = self.prior.observables.disturbances, self.objective.layout.slices.disturbance_deviations
        if own is None:
            return ()
        rows = zip(own.names, own.kinds, self.optimum.at_bound[stds], strict=True)
        return tuple(name for name, kind, at_bound in rows if kind == WHITE_NOISE and not at_bound)

    def residuals(self, series: TimeSeries) -> ResidualSeries:
        """Return what the fit leaves of the measurements of one observable, in memory."""

        def mean(times: NDArray[np.float64]) -> NDArray[np.float64]:
            if all(np.array_equal(series.times, other.times) for other in self.measurements.series):
                column = self.prior.noise.observables.index(series.observable)
                return self.fitted_curves[0].evaluate_all(times)[:, column]
            reader = ObservableCompiler(self.system, self.measurements.inputs, self.prior.disturbances)
            compiled = reader.compile_unscaled([series.observable], self.prior.units)
            return self.posterior.mean(compiled, times)[:, 0]

        return compute_residuals(series, mean, self.noise_std_of(series.observable), self.innovation_sample)

    @cached_property
    def innovation_sample(self) -> InnovationSample | None:
        """What measurements add to those before them; from a matrix, in a few runs of neighbours where there are many.

        None without free functions, where a matrix has exact measurements, or where rounding hides it.
        """
        whole = uses_kalman_filter(self.factory, self.prior)
        if not self.prior.has_process or (self.measurements.has_exact_values and not whole):
            return None
        hyper = self.objective.layout.unpack(self.optimum.x)
        every = with_empty_series(self.measurements, self.prior.noise.observables).series
        times: dict[str, list[Array]] = {item.observable: [] for item in every}
        values: dict[str, list[Array]] = {item.observable: [] for item in every}
        mean_square, typical_std = dict[str, float](), dict[str, float]()
        for run in [every] if whole else split_into_segments(every):
            turns = self.last_innovations
            if turns is None:
                turns = compute_innovations(self.factory, self.prior, run, hyper)
            if turns is None:
                return None
            for number, item in enumerate(run):
                own = turns.observables == number
                # Exact values have no noise.
                times[item.observable].append(item.times[~item.is_exact])
                values[item.observable].append(turns.standardized[own][~item.is_exact])
                if self.prior.disturbances and len(item.times):
                    mean_square[item.observable] = float(np.mean((turns.standardized * turns.std)[own] ** 2))
                    typical_std[item.observable] = float(np.median(turns.std[own]))
        if not any(values.values()):
            return None
        joined = [{name: np.concatenate(parts) for name, parts in each.items()} for each in (times, values)]
        return InnovationSample(joined[0], joined[1], mean_square, typical_std)

    @property
    def checked_series(self) -> list[TimeSeries]:
        """The measurements whose residuals are looked at: all in memory, the last ones of rows on disk."""
        if not isinstance(self.posterior, BatchedPosterior):
            return list(self.measurements.series)
        return [item for item in self.posterior.last_series() if len(item.times)]

    @property
    def last_chunk(self) -> DiagnosticData | None:
        """The same of the last piece of rows on disk; None where there are none."""
        if not isinstance(self.posterior, BatchedPosterior):
            return None
        kept = Measurements(self.checked_series, inputs=self.measurements.inputs)
        return replace(self, measurements=kept, last_innovations=self.posterior.last_innovations())

    def prediction_std(self) -> dict[str, float]:
        """Return the deviation of a prediction from all rows before, by observable; of noise, where that is all."""
        own = self.last_chunk or self
        found = own.innovation_sample if self.prior.disturbances and own.measurements.series else None
        typical = {} if found is None else found.typical_std
        return {name: typical.get(name, self.noise_std_of(name)) for name in self.measurements.names}

    @property
    def diffuse_evidence_correction(self) -> float:
        """How much less open modes of one record cost than what stands for infinity."""
        layout = self.objective.layout
        if layout.diffuse_modes is None:
            return 0.0
        errors = np.array(list(self.prediction_std().values())) / self.prior.units.scales
        return layout.diffuse_modes.proper_prior_offset(layout.unpack(self.optimum.x).theta, errors)

    def _check_from_statistics(self, data: ObservableStatistics, last: ResidualCheck | None) -> ResidualCheck:
        explained = 1.0 - (self.noise_std_of(data.observable) / data.std) ** 2 if data.std > 0 else math.nan
        if last is None:
            return ResidualCheck(data.observable, data.count, 0, 1.0, 0.0, explained)
        # The last rows alone do not determine the explained fraction of all rows.
        return replace(last, count=data.count, explained=explained, expected=math.nan, predicted=math.nan)


#: So many times the noise that smooth curves leave, and more than this share of the variance of the data.
_MIN_UNEXPLAINED_FRACTION = 0.2
#: Residuals so many times as large as known noise say that the fit has missed the data, or that the noise is not known.
_MAX_NOISE_RATIO = 10.0


@dataclass(frozen=True)
class Diagnosis:
    """What is to be known about a fit before it is believed.

    failures: Why the search has failed, in sentences; empty where it has not.
    identifiability: What was found out about parameters beside the curvature.
    identifiable_combinations: What is determined of parameters that exact algebra shows to be undetermined, such as
        ``k/m``.
    sign_symmetries: Parameters whose signs can change together.
    checks: What the residuals of each observable say.
    log_evidence_gain: By how much the log evidence exceeds that of smooth curves that obey no equation, over the
        measurements that were compared; NaN where they were not.
    widening: By which factor the standard error of a parameter is larger than the curvature says, because residuals
        are correlated; empty where nothing was widened.
    alternatives: Other values of the parameters that fit about as well.
    """

    failures: tuple[str, ...] = ()
    identifiability: Mapping[str, IdentifiabilityResult] = field(default_factory=dict)
    identifiable_combinations: tuple[str, ...] = ()
    sign_symmetries: tuple[tuple[str, ...], ...] = ()
    checks: tuple[ResidualCheck, ...] = ()
    log_evidence_gain: float = math.nan
    widening: Mapping[str, float] = field(default_factory=dict)
    alternatives: tuple[AlternativeOptimum, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the search has failed."""
        return bool(self.failures)

    @property
    def needs_more_data(self) -> bool:
        """Whether parameters are left open that the equations do not leave open: other data could tell them."""
        # No other record helps against structural reasons.
        open_ = (each for each in self.identifiability.values() if not each.identified)
        return any(each.reason not in ("structure", "size") for each in open_)

    @property
    def explained_variance(self) -> dict[str, float]:
        """The share of the variance of each observable that the curves explain; none for what does not change.

        Of several records that which is explained least counts.
        """
        found: dict[str, float] = {}
        for check in self.checks:
            if not math.isnan(check.explained):
                # Minus zero becomes zero.
                found[check.name] = min(found.get(check.name, math.inf), check.explained + 0.0)
        return found

    @property
    def notes(self) -> list[str]:
        """What is worth knowing and no reason to worry."""
        return [
            f"the data do not tell the sign{'s' * (len(names) > 1)} of {join_list(names)}: "
            f"{'all of them' if len(names) > 2 else 'both' if len(names) == 2 else 'it'} can change"
            f"{' together' * (len(names) > 1)}; reported is what has the most positive values. Where signs are known, "
            "declare them: positive = true"
            for names in self.sign_symmetries
        ]

    def for_record(self, name: str) -> Diagnosis:
        """Return the same with the residuals of one record alone."""
        own = (replace(check, record="") for check in self.checks if check.record == name)
        return replace(self, checks=tuple(own))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is not finite is None."""
        return {
            "trouble": list(self.failures),
            "verdicts": {name: to_json_values(asdict(verdict)) for name, verdict in self.identifiability.items()},
            "combinations": list(self.identifiable_combinations),
            "symmetries": [list(names) for names in self.sign_symmetries],
            "checks": [to_json_values(asdict(check)) for check in self.checks],
            "advantage": to_json_values(self.log_evidence_gain),
            "widening": dict(self.widening),
            "rivals": [asdict(rival) for rival in self.alternatives],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Diagnosis:
        """Return what `to_dict` has taken apart."""
        advantage = state["advantage"]
        return cls(
            tuple(state["trouble"]),
            {name: IdentifiabilityResult.from_dict(each) for name, each in state["verdicts"].items()},
            tuple(state["combinations"]),
            tuple(tuple(names) for names in state["symmetries"]),
            tuple(_check_from_dict(check) for check in state["checks"]),
            math.nan if advantage is None else float(advantage),
            dict(state.get("widening", {})),
            tuple(AlternativeOptimum.from_dict(each) for each in state.get("rivals", ())),
        )


def _check_from_dict(state: Mapping[str, Any]) -> ResidualCheck:
    """Return a check that was taken apart; older files tell less of it."""
    found: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
    own = found.pop("whiteness", None)
    found["outliers"] = tuple((float(time), float(far)) for time, far in found.get("outliers", ()))
    found["white"] = tuple(found.get("white", ()))
    return ResidualCheck(**found, whiteness=WhitenessTest.from_dict(own) if isinstance(own, Mapping) else None)


def to_json_values(value: Any) -> Any:
    """Return values that JSON can hold: lists for tuples, None for what is not finite; dicts and lists are followed."""
    if isinstance(value, dict):
        return {key: to_json_values(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def diagnose_fit(
    data: DiagnosticData,
    structure: StructuralIdentifiability | None = None,
    identifiability: Mapping[str, IdentifiabilityResult] | None = None,
) -> Diagnosis:
    """Return the diagnosis of a fit."""
    with np.errstate(all="ignore"):
        checks = data.residual_checks()
        if structure is None:
            return Diagnosis(identifiability=dict(identifiability or {}), checks=checks)
        advantage, poor = _compare_records_with_null_model(data, checks)
        trouble = [*_search_failures(data), *poor]
        rivals: tuple[AlternativeOptimum, ...] = ()
        if poor:
            errors = relative_standard_errors(data.objective, data.optimum, data.information)
            # Where a search ended in a poor place, what is flat there says nothing about the data.
            loud = any(check.size > _MAX_NOISE_RATIO for check in checks)
            lost = [name for name, error in errors.items() if loud or not 0.0 < error < 3.0]
            failed = IdentifiabilityResult(False, "unknown, the search failed", "failed")
            found = dict.fromkeys(lost, failed) | assess_structure(structure)
        else:
            known = data.objective, data.optimum, data.information
            # As intervals are widened where free functions do not take up what is left.
            slow = (check.std_error_inflation for check in checks if check.is_autocorrelated)
            inflation = max(slow, default=1.0) if data.prior.n_processes else 1.0
            found = assess_identifiability(structure, data.fitted_curves, *known, inflation)
            rivals = find_alternative_optima(*known, data.times, structure)
            found |= assess_alternatives(*known, rivals, found)
            unresolved = find_undersampled_parameters(data.system, data.measurements.names) * data.is_noise_free
            undersampled = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "unresolved")
            found |= dict.fromkeys([name for name in unresolved if name not in found], undersampled)
    symmetries = tuple(tuple(n for n in structure.system.parameters if n in s) for s in structure.sign_symmetry_groups)
    combinations = tuple(structure.identifiable_combinations)
    return Diagnosis(tuple(trouble), found, combinations, symmetries, checks, advantage, alternatives=rivals)


def _search_failures(data: DiagnosticData) -> list[str]:
    """Return whether the search has not come to an end, in sentences."""
    optimum, layout = data.optimum, data.objective.layout
    found = []
    if optimum.message == UNDEFINED_MESSAGE:
        found.append(
            "the evidence grows towards values at which rounding leaves too few digits of it, because the noise is "
            "very small against the data; parameters may be far from their best values: give a larger noise_std"
        )
    elif not optimum.converged:
        found.append(
            "the search did not converge; parameters may be far from their best values: give start values or bounds, "
            "more restarts, or check for channels that are constant"
        )
    far = [
        layout.names[number]
        for position, number in enumerate(layout.free_parameters)
        if optimum.at_bound[position] and layout.transforms[number].is_unbounded
    ]
    if far:
        found.append(f"the search took {join_list(far)} to the limit of what it tries: give start values or bounds")
    return found


def _compare_records_with_null_model(data: DiagnosticData, checks: Sequence[ResidualCheck]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, over all records, and which are clearly worse."""
    if not data.records:
        return _compare_with_null_model(data, checks)
    advantages, found = [], []
    for name, part in data.records.items():
        advantage, poor = _compare_with_null_model(part, [check for check in checks if check.record == name])
        advantages.append(advantage)
        found += [f"record {name}: {text}" for text in poor]
    known = [each for each in advantages if not math.isnan(each)]
    return sum(known) if known else math.nan, found


def _compare_with_null_model(data: DiagnosticData, checks: Sequence[ResidualCheck]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, and what follows where it is clearly worse."""
    kept = data.measurements
    # Where curves explain the data, no yardstick is needed.
    if kept.sufficient_statistics is not None or not any(
        1.0 - each.explained > _MIN_UNEXPLAINED_FRACTION or each.size > _MAX_NOISE_RATIO for each in checks
    ):
        return math.nan, []
    runs = subsample_segments(kept)
    null_model = fit_null_model(runs.series, data.prior.noise.restricted_to(runs.names), data.prior.units.time_scale)
    if null_model is None:
        return math.nan, []
    null_evidence, null_noise = null_model
    advantage = (data.posterior.value if runs is kept else data.log_evidence_on(runs)) - null_evidence
    poor = _poorly_explained(checks, null_noise, {each.observable: each.std for each in kept.observable_statistics})
    # The null model is chosen on the data, which favours it by a few nats.
    if not poor or not advantage < -(10.5 + 0.05 * sum(len(item.times) for item in runs.series)):
        return advantage, []
    loud = ", or their noise is larger than was said" * any(each.size > _MAX_NOISE_RATIO for each in checks)
    return advantage, [
        f"the search ended in a poor place, or the equations do not describe these data{loud}: smooth curves that "
        f"obey no equation are more likely by {-advantage:.0f} nats, and leave less of {join_list(poor)} to the noise; "
        "try start values, bounds or more restarts, and check the equations, the units and the data"
    ]


def _poorly_explained(
    checks: Sequence[ResidualCheck], null_noise_std: Mapping[str, float], data_std: Mapping[str, float]
) -> list[str]:
    """Return observables of which the null model explains clearly more, each with both explained fractions."""
    found = []
    for check in checks:
        # A smooth curve explains fewer than five values exactly.
        if math.isnan(check.explained) or check.count < 5:
            continue
        left = 1.0 - check.explained
        # The size of the noise in units of the spread of the data.
        share = (null_noise_std[check.name] / data_std[check.name]) ** 2
        if check.size > _MAX_NOISE_RATIO or (left > 3.0 * share and left > _MIN_UNEXPLAINED_FRACTION):
            both = max(1.0 - share, 0.0), max(check.explained, 0.0)
            found.append(f"{check.name} ({both[0]:.0%} against {both[1]:.0%} explained)")
    return found


#: So many measurements of each observable are looked at: in runs of neighbours, so that fast changes are seen, too.
_N_SEGMENTS, _SEGMENT_ROWS = 3, 20
#: Levels of noise in spreads of the data. Deviations go on by the same step, so that there are few ratios of the two:
#: those at these places, from about a tenth to thirty spreads.
_NOISE_GRID = np.geomspace(1e-6, 1.5, 29)
_NOISE_GRID_RATIO, _AMPLITUDE_INDEX = _NOISE_GRID[1] / _NOISE_GRID[0], np.arange(23, 35)


def subsample_segments(measurements: Measurements) -> Measurements:
    """Return measurements in runs of neighbours where there are many; the same where there are few."""
    if all(len(item.times) <= _N_SEGMENTS * _SEGMENT_ROWS for item in measurements.series):
        return measurements
    found = []
    for item in measurements.series:
        starts = np.linspace(0, max(len(item.times) - _SEGMENT_ROWS, 0), _N_SEGMENTS).astype(np.intp)
        rows = np.unique(np.minimum(starts[:, None] + np.arange(_SEGMENT_ROWS), len(item.times) - 1))
        found.append(item.select(rows) if len(item.times) > _N_SEGMENTS * _SEGMENT_ROWS else item)
    return Measurements(found)


def fit_null_model(
    series: Sequence[TimeSeries], noise: NoiseModel, span: float
) -> tuple[float, dict[str, float]] | None:
    """Return log evidence and noise std (rms) by observable; None if noise is zero, or partly known, partly learned."""
    if any(item.is_exact.any() or (item.has_known_noise.any() and item.has_unknown_noise.any()) for item in series):
        return None
    units = noise.level_scales
    totals = np.zeros((len(units), len(_NOISE_GRID)))
    tables: list[Array] = []
    spectra: dict[bytes, tuple[Array, Array]] = {}
    for item, group in zip(series, noise.level_indices, strict=True):
        levels = units[group] * _NOISE_GRID if item.has_unknown_noise.any() else np.ones(1)
        weights = np.ones(len(item.times)) if item.has_unknown_noise.any() else 1.0 / item.std
        # Observables with the same times have the same covariances.
        key = item.times.tobytes() + weights.tobytes()
        if key not in spectra:
            spectra[key] = _eigendecompose_covariances(item.times / (float(span) or 1.0), weights)
        table = _max_log_evidence(item.values, weights, levels, *spectra[key])
        totals[group] += table
        tables.append(np.broadcast_to(table, _NOISE_GRID.shape))
    best = totals.argmax(axis=1)
    if not np.isfinite(totals.max(axis=1)).all():
        return None
    found = {
        item.observable: float(units[group] * _NOISE_GRID[best[group]])
        if item.has_unknown_noise.any()
        else float(np.sqrt(np.mean(item.std**2)))
        for item, group in zip(series, noise.level_indices, strict=True)
    }
    value = sum(float(table[best[group]]) for table, group in zip(tables, noise.level_indices, strict=True))
    return value, found


def _eigendecompose_covariances(times: Array, weights: Array) -> tuple[Array, Array]:
    """Return eigenvalues, (l, n), and eigenvectors, (l, n, n), of weighted covariances with several lengthscales."""
    lag = times[:, None] - times[None, :]
    step = float(np.median(np.diff(np.unique(times)))) if np.ptp(times) > 0 else 1.0
    # Lengthscales from 0.7 sampling steps to three time spans.
    lengths = np.geomspace(min(max(0.7 * step, 1e-9), 1.0), 3.0, 12)
    correlations = np.exp(-0.5 * (lag / lengths[:, None, None]) ** 2)
    eigenvalues, vectors = np.linalg.eigh(correlations * np.outer(weights, weights))
    return np.maximum(eigenvalues, 0.0), vectors


def _max_log_evidence(values: Array, weights: Array, noise_grid: Array, eigenvalues: Array, vectors: Array) -> Array:
    """Return the best log evidence of a series over lengthscales and deviations at each level of noise.

    Shapes: values, weights (n,), eigenvalues, vectors (l, n) and (l, n, n).
    """
    count, mean = len(values), float(values.mean())
    spread = float(np.std(values)) or float(np.max(np.abs(values))) or 1.0
    # A constant beside the curve, as large as the mean: what does not change needs no lengthscale.
    constant = 1.0 + (mean / spread) ** 2
    ones, rest = weights @ vectors, (weights * (values - mean)) @ vectors
    # Variances of the rotated data in units of the deviation: lengthscales, ratios of level and deviation, data.
    ratios = np.arange(-_AMPLITUDE_INDEX.max(), len(noise_grid) - _AMPLITUDE_INDEX.min())
    noise = (noise_grid[0] / (spread * _NOISE_GRID[0]) * _NOISE_GRID_RATIO**ratios) ** 2
    variances = eigenvalues[:, None, :] + noise[:, None]
    square, both, one = ((part[:, None, :] / variances).sum(axis=2) for part in (rest**2, rest * ones, ones**2))
    # Of the constant, Sherman and Morrison know what it changes.
    more = 1.0 + constant * one
    square += (mean * (2.0 * both + mean * one) - constant * both**2) / more
    logs = np.log(variances).sum(axis=2) + np.log(more)
    # Levels, deviations.
    rows = np.arange(len(noise_grid))[:, None] - _AMPLITUDE_INDEX - ratios[0]
    unit = (spread * _NOISE_GRID[0] * _NOISE_GRID_RATIO**_AMPLITUDE_INDEX) ** 2
    found = square[:, rows] / unit + logs[:, rows] + count * np.log(2.0 * np.pi * unit)
    return np.asarray(np.log(weights).sum() - 0.5 * found.min(axis=(0, 2)))
