"""Diagnosis of a fit: convergence, identifiability, residual tests and comparison with a null model.

A search has failed if it did not converge, ended at a bound of the search, or has a clearly smaller log evidence than
the null model. Parameters that the data do not identify are a separate finding.

The null model consists of smooth Gaussian processes without equations, one per observable.

Correct equations have at least the same log evidence. The noise model is the same as in the fit. A grid over
lengthscales, amplitudes and noise levels replaces a search, so the null model has no local optima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from lodekit.data.noise import NoiseModel
from lodekit.data.observations import TimeSeries, concatenate_series
from lodekit.data.records import Measurements, ObservableStatistics, RecordSet
from lodekit.diagnostics.equivalent_parameters import AlternativeOptimum, find_alternative_optima
from lodekit.diagnostics.identifiability import (
    IdentifiabilityResult,
    LikelihoodShape,
    assess_alternatives,
    assess_identifiability,
    assess_signs,
    assess_structure,
    relative_standard_errors,
)
from lodekit.diagnostics.messages import convergence_failures, describe_poor_fit, describe_sign_symmetry
from lodekit.diagnostics.residual_tests import FittedRecord, ResidualCheck, WhitenessTest
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.scaling import time_gaps
from lodekit.fitting.setup import FitSetup
from lodekit.fitting.starts.input_output import parameters_occurring
from lodekit.support.arguments import Array
from lodekit.support.text import to_json_values
from lodekit.system.system import System
from lodekit.uncertainty.estimates import NOT_IDENTIFIED_MESSAGE


def is_undersampled(lengthscales: Array, times: Sequence[Array]) -> bool:
    """Return whether all lengthscales are shorter than about one sampling interval.

    The prior then determines the lengthscale and every derivative.
    """
    gaps = time_gaps(times)
    # At this spacing, about one millionth of the process variance is above the Nyquist frequency.
    return bool(len(gaps) and len(lengthscales) and float(np.max(lengthscales)) < 1.5 * float(np.median(gaps)))


def find_undersampled_parameters(system: System, measured: Sequence[str]) -> list[str]:
    """Return the parameters of equations with an unmeasured channel or derivative, in order."""
    operator, found = system.operator, set()
    open_equations = {i for i, j, k, _ in operator.terms() if system.channels[j] + "'" * k not in measured}
    for i, _, _, value in operator.terms():
        if i in open_equations:
            found |= parameters_occurring(operator.ring, [value.numerator, value.denominator])
    return [name for number, name in enumerate(system.parameters) if number in found]


def is_noise_free(
    setup: FitSetup, optimum: Optimum, noise_std_of: Callable[[str], float], times: Sequence[Array]
) -> bool:
    """Return whether almost nothing is attributed to noise although the data are undersampled."""
    # Smaller noise is attributed to rounding errors.
    if any(noise_std_of(each.observable) > 1e-5 * each.std for each in setup.measurements.observable_statistics):
        return False
    return is_undersampled(setup.prior.units.time_scale * setup.layout.unpack(optimum.x).lengthscales, times)


#: A poor fit leaves more than this share of the variance of the data (and three times that of smooth curves).
_MIN_UNEXPLAINED_FRACTION = 0.2
#: If residuals are this many times as large as the known noise, the fit misses the data, or the noise is wrong.
_MAX_NOISE_RATIO = 10.0


@dataclass(frozen=True)
class Diagnosis:
    """Results of the checks of a fit: convergence, identifiability and residuals.

    failures: Why the search has failed, in sentences; empty if it has not.
    identifiability: Identifiability of parameters by name; None if profile likelihoods have not been computed yet
        (`assess_parameters`).
    identifiable_combinations: Identifiable combinations, such as ``k/m``, of parameters that exact algebra proves to be
        unidentifiable.
    sign_symmetries: Parameters whose signs can change together.
    checks: Residual tests of each observable.
    widening: Factors by which the standard errors of parameters are widened, because residuals are correlated; may be
        empty.
    alternatives: Other values of the parameters that fit about as well.
    """

    failures: tuple[str, ...] = ()
    identifiability: Mapping[str, IdentifiabilityResult] | None = field(default_factory=dict)
    identifiable_combinations: tuple[str, ...] = ()
    sign_symmetries: tuple[tuple[str, ...], ...] = ()
    checks: tuple[ResidualCheck, ...] = ()
    widening: Mapping[str, float] = field(default_factory=dict)
    alternatives: tuple[AlternativeOptimum, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the search has failed."""
        return bool(self.failures)

    @property
    def needs_more_data(self) -> bool:
        """Whether other data could identify parameters that are not identified."""
        # More data cannot resolve structural reasons, or parameters with the same behaviour.
        open_ = (each for each in (self.identifiability or {}).values() if not each.identified)
        return any(each.reason not in ("structure", "size", "twin") for each in open_)

    @property
    def explained_variance(self) -> dict[str, float]:
        """The share of the variance of each observable that the curves explain; without constant observables.

        Of several records, the one with the smallest share is used.
        """
        found: dict[str, float] = {}
        for check in self.checks:
            if not math.isnan(check.explained):
                # Adding zero turns -0.0 into 0.0.
                found[check.name] = min(found.get(check.name, math.inf), check.explained + 0.0)
        return found

    @property
    def notes(self) -> list[str]:
        """Notes that are not warnings."""
        return [describe_sign_symmetry(names) for names in self.sign_symmetries]

    def for_record(self, name: str) -> Diagnosis:
        """Return the diagnosis with the residuals of one record only."""
        own = (replace(check, record="") for check in self.checks if check.record == name)
        return replace(self, checks=tuple(own))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; non-finite numbers are None."""
        return {
            "trouble": list(self.failures),
            "verdicts": {name: to_json_values(asdict(each)) for name, each in (self.identifiability or {}).items()},
            "combinations": list(self.identifiable_combinations),
            "symmetries": [list(names) for names in self.sign_symmetries],
            "checks": [to_json_values(asdict(check)) for check in self.checks],
            "widening": dict(self.widening),
            "rivals": [asdict(rival) for rival in self.alternatives],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Diagnosis:
        """Return the diagnosis from the result of `to_dict`."""
        return cls(
            tuple(state["trouble"]),
            {name: IdentifiabilityResult.from_dict(each) for name, each in state["verdicts"].items()},
            tuple(state["combinations"]),
            tuple(tuple(names) for names in state["symmetries"]),
            tuple(_check_from_dict(check) for check in state["checks"]),
            dict(state.get("widening", {})),
            tuple(AlternativeOptimum.from_dict(each) for each in state.get("rivals", ())),
        )


def _check_from_dict(state: Mapping[str, Any]) -> ResidualCheck:
    """Return a check from its JSON state; older files lack some of its fields."""
    found: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
    own = found.pop("whiteness", None)
    found["outliers"] = tuple((float(time), float(far)) for time, far in found.get("outliers", ()))
    found |= {key: tuple(found.get(key, ())) for key in ("white", "delayed")}
    return ResidualCheck(**found, whiteness=WhitenessTest.from_dict(own) if isinstance(own, Mapping) else None)


def diagnose_fit(
    setup: FitSetup,
    optimum: Optimum,
    information: Array,
    records: Mapping[str, FittedRecord],
    known_results: Mapping[str, IdentifiabilityResult] | None = None,
) -> Diagnosis:
    """Return the diagnosis of a fit without profile likelihoods; with known results, of the residuals only.

    Shapes: information (n, n).
    """
    # Series of exact values are not tested.
    exact = sum(bool(np.all(item.std == 0.0)) for record in records.values() for item in record.measurements.series)
    n_series = sum(len(record.measurements.names) for record in records.values()) - exact
    checks = tuple(
        replace(check, record=name if len(records) > 1 else "")
        for name, record in records.items()
        for check in record.residual_checks(n_series)
    )
    if known_results is not None:
        return Diagnosis(identifiability=known_results, checks=checks)
    structure, known = setup.structural_identifiability, (setup.objective, optimum, information)
    poor = _compare_with_null_model(records, checks)
    failures = [*convergence_failures(setup.layout, optimum), *poor]
    alternatives: tuple[AlternativeOptimum, ...] = ()
    results: dict[str, IdentifiabilityResult] | None = None
    if poor:
        errors = relative_standard_errors(*known)
        # A flat direction of a poor fit is not a property of the data.
        is_loud = any(check.size > _MAX_NOISE_RATIO for check in checks)
        lost = [name for name, error in errors.items() if is_loud or not 0.0 < error < 3.0]
        failed = IdentifiabilityResult(False, "unknown, because the fit is poor", "failed")
        results = dict.fromkeys(lost, failed) | assess_structure(structure)
    else:
        is_zero = optimum.at_bound[setup.layout.slices.disturbance_deviations]
        zero = [name for name, at_bound in zip(setup.prior.disturbances, is_zero, strict=True) if at_bound]
        alternatives = find_alternative_optima(*known, _times_of(records), structure.without_disturbances(zero))
    symmetries = tuple(tuple(n for n in structure.system.parameters if n in s) for s in structure.sign_symmetry_groups)
    combinations = tuple(structure.identifiable_combinations)
    return Diagnosis(tuple(failures), results, combinations, symmetries, checks, alternatives=alternatives)


def assess_parameters(
    setup: FitSetup,
    optimum: Optimum,
    information: Array,
    records: Mapping[str, FittedRecord],
    noise_std_of: Callable[[str], float],
    diagnosis: Diagnosis,
    profile_shapes: tuple[Array, Array],
) -> dict[str, IdentifiabilityResult]:
    """Return results on parameters beyond the Hessian, by name: from algebra, profiles and other optima.

    Shapes: information (n, n), profile_shapes (p,) each.
    """
    shape = LikelihoodShape(setup.objective, optimum, information, *profile_shapes)
    structure, widening = setup.structural_identifiability, diagnosis.widening
    results = assess_identifiability(structure, list(records.values()), shape, widening)
    results |= assess_alternatives(shape, diagnosis.alternatives, results)
    either = dict.fromkeys(name for names in diagnosis.sign_symmetries for name in names)
    sure = [n for n in either if n not in results or results[n].identified or results[n].reason == "side"]
    results |= assess_signs(shape, sure, results)
    if is_noise_free(setup, optimum, noise_std_of, _times_of(records)):
        undersampled = find_undersampled_parameters(setup.system, setup.measurements.names)
        unresolved = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "unresolved")
        results |= dict.fromkeys([name for name in undersampled if name not in results], unresolved)
    return results


def _times_of(records: Mapping[str, FittedRecord]) -> list[Array]:
    return [record.times for record in records.values() if record.measurements.series]


def _compare_with_null_model(records: Mapping[str, FittedRecord], checks: Sequence[ResidualCheck]) -> list[str]:
    """Return a failure if the log evidence is clearly smaller than that of the null model.

    All records are judged together: how a file is split into records does not matter.
    """
    if any(each.measurements.sufficient_statistics is not None for each in records.values()):
        return []
    joint = RecordSet(parts={name: each.measurements for name, each in records.items()})
    statistics = {each.observable: each for each in joint.observable_statistics}
    checks = _pool_checks(joint, statistics, checks)
    # If the curves explain the data, no null model is needed.
    is_loud = any(each.size > _MAX_NOISE_RATIO for each in checks)
    if not is_loud and not any(1.0 - each.explained > _MIN_UNEXPLAINED_FRACTION for each in checks):
        return []
    prior, (runs, joined) = next(iter(records.values())).prior, sample_segments(joint)
    noise = prior.noise.restricted_to([item.observable for item in joined])
    null_model = fit_null_model(joined, noise, prior.units.time_scale)
    if null_model is None:
        return []
    null_evidence, null_noise = null_model
    n_rows = sum(len(item.times) for item in joined)
    evidence = sum(
        each.posterior.value if n_rows == joint.size else each.setup.evidence_of(runs[name], each.hyperparameters)
        for name, each in records.items()
        if runs[name].size
    )
    loss, poor = null_evidence - evidence, _poorly_explained(checks, null_noise, statistics)
    # The null model is chosen on the data, which favours it by a few nats.
    is_clear = bool(poor) and loss > 10.5 + 0.05 * n_rows
    known = {name: each.fixed for name, each in next(iter(records.values())).setup.system.parameters.items()}
    fixed = [f"{name} = {value:.5g}" for name, value in known.items() if value is not None]
    return [describe_poor_fit(loss, poor, fixed, is_loud=is_loud)] if is_clear else []


def _pool_checks(
    joint: RecordSet, statistics: Mapping[str, ObservableStatistics], checks: Sequence[ResidualCheck]
) -> list[ResidualCheck]:
    """Return the residual check of each observable with its count, size and explained variance over all records."""
    parts = {name: part.observable_statistics for name, part in joint.parts.items()}
    variances = {(name, item.observable): item.std**2 for name, own in parts.items() for item in own}
    only = next(iter(parts))
    found = []
    for name, total in statistics.items():
        own = [each for each in checks if each.name == name]
        looked = sum(each.looked for each in own)
        size = math.sqrt(sum(each.looked * each.size**2 for each in own) / max(looked, 1))
        # The explained variance of constant measurements is unknown.
        varying = [each for each in own if not math.isnan(each.explained)]
        left = sum((1.0 - each.explained) * each.count * variances[each.record or only, name] for each in varying)
        explained = 1.0 - left / (total.count * total.std**2) if varying else math.nan
        found.append(replace(own[0], count=total.count, looked=looked, size=size, explained=explained))
    return found


def _poorly_explained(
    checks: Sequence[ResidualCheck], null_noise_std: Mapping[str, float], statistics: Mapping[str, ObservableStatistics]
) -> list[str]:
    """Return observables that the null model explains clearly better, each with both explained fractions."""
    found = []
    for check in checks:
        # A smooth curve explains fewer than five values exactly.
        if math.isnan(check.explained) or check.count < 5:
            continue
        left = 1.0 - check.explained
        # Noise variance as a fraction of the variance of the data.
        share = (null_noise_std[check.name] / statistics[check.name].std) ** 2
        if check.size > _MAX_NOISE_RATIO or (left > 3.0 * share and left > _MIN_UNEXPLAINED_FRACTION):
            both = max(1.0 - share, 0.0), max(check.explained, 0.0)
            found.append(f"{check.name} ({100 * both[0]:.0f} % instead of {100 * both[1]:.0f} %)")
    return found


#: Number and length of the segments of each observable; neighbouring rows show fast changes.
_N_SEGMENTS, _SEGMENT_ROWS = 3, 20
#: Noise levels relative to the standard deviation of the data. Amplitudes use the same logarithmic grid, from about 0.1
#: to 30 standard deviations, so that there are few ratios of the two.
_NOISE_GRID = np.geomspace(1e-6, 1.5, 29)
_NOISE_GRID_RATIO, _AMPLITUDE_INDEX = _NOISE_GRID[1] / _NOISE_GRID[0], np.arange(23, 35)


def sample_segments(joint: RecordSet) -> tuple[dict[str, Measurements], list[TimeSeries]]:
    """Return a few segments of consecutive rows of each observable, or all rows if they are few.

    Both by record, and in one series of each observable; there, records are too far apart to be correlated.
    """
    found: dict[str, list[TimeSeries]] = {name: [] for name in joint.parts}
    joined, distance = [], 1e3 * (joint.window[1] - joint.window[0])
    for statistics in joint.observable_statistics:
        rows, first, parts = np.arange(statistics.count), 0, []
        if statistics.count > _N_SEGMENTS * _SEGMENT_ROWS:
            starts = np.linspace(0, statistics.count - _SEGMENT_ROWS, _N_SEGMENTS).astype(np.intp)
            rows = (starts[:, None] + np.arange(_SEGMENT_ROWS)).ravel()
        for number, (name, record) in enumerate(joint.parts.items()):
            for item in (item for item in record.series if item.observable == statistics.observable):
                last = first + len(item.times)
                found[name].append(item.select(rows[(rows >= first) & (rows < last)] - first))
                parts.append(replace(found[name][-1], times=found[name][-1].times - item.times[0] + number * distance))
                first = last
        joined.append(concatenate_series(parts))
    return {name: Measurements(series) for name, series in found.items()}, joined


def fit_null_model(
    series: Sequence[TimeSeries], noise: NoiseModel, span: float
) -> tuple[float, dict[str, float]] | None:
    """Return log evidence and noise std (rms) by observable; None if noise is zero, or known for some rows only."""
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
    """Return the largest log evidence of a series over lengthscales and amplitudes at each noise level.

    Shapes: values, weights (n,), eigenvalues, vectors (l, n) and (l, n, n).
    """
    count, mean = len(values), float(values.mean())
    spread = float(np.std(values)) or float(np.max(np.abs(values))) or 1.0
    # A constant offset with the magnitude of the mean, so that constant data need no lengthscale.
    constant = 1.0 + (mean / spread) ** 2
    ones, rest = weights @ vectors, (weights * (values - mean)) @ vectors
    # Variances of the rotated data in units of the amplitude: lengthscales, ratios of noise and amplitude, data.
    ratios = np.arange(-_AMPLITUDE_INDEX.max(), len(noise_grid) - _AMPLITUDE_INDEX.min())
    noise = (noise_grid[0] / (spread * _NOISE_GRID[0]) * _NOISE_GRID_RATIO**ratios) ** 2
    variances = eigenvalues[:, None, :] + noise[:, None]
    square, both, one = ((part[:, None, :] / variances).sum(axis=2) for part in (rest**2, rest * ones, ones**2))
    # The constant is a rank-one update (Sherman-Morrison formula).
    more = 1.0 + constant * one
    square += (mean * (2.0 * both + mean * one) - constant * both**2) / more
    logs = np.log(variances).sum(axis=2) + np.log(more)
    # Noise levels, amplitudes.
    rows = np.arange(len(noise_grid))[:, None] - _AMPLITUDE_INDEX - ratios[0]
    unit = (spread * _NOISE_GRID[0] * _NOISE_GRID_RATIO**_AMPLITUDE_INDEX) ** 2
    found = square[:, rows] / unit + logs[:, rows] + count * np.log(2.0 * np.pi * unit)
    return np.asarray(np.log(weights).sum() - 0.5 * found.min(axis=(0, 2)))
