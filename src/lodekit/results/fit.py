"""A fit as a frozen value (setup, optimum, Hessian and derived results), and the functions that create fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, RecordSet, check_no_overlap, find_record_index
from lodekit.data.sources import FAILED_SENSOR
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.diagnosis import Diagnosis, assess_parameters, diagnose_fit
from lodekit.diagnostics.identifiability import IdentifiabilityResult, apply_identifiability
from lodekit.diagnostics.messages import collect_warnings, describe_input
from lodekit.diagnostics.residual_tests import FittedRecord, estimate_unexplained_std, inflate_all
from lodekit.errors import AccuracyError, DataError, EquationError, FitError, LodekitError
from lodekit.fitting import search_options as options
from lodekit.fitting.hessian import invert_information, observed_information, residual_dof_fraction
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.multistart import canonicalize_optimum, maximize_objective, refine_information, switch_optimum
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.engine import Posterior
from lodekit.inference.selection import EngineChoice
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, as_times
from lodekit.support.labels import Labels
from lodekit.support.progress import track_progress
from lodekit.support.text import join_list
from lodekit.system.dimensions import derive_units
from lodekit.system.system import System
from lodekit.uncertainty.estimates import Estimate, estimate_parameters, inflated_quantile, satterthwaite_dof
from lodekit.uncertainty.laplace import LaplaceApproximation
from lodekit.uncertainty.sandwich import compute_inflation_factors, sandwich_covariance
from lodekit.uncertainty.variance_tests import Disturbance, summarize_disturbances

#: Label of standard deviations of modes, before their number.
MODE_STD_LABEL = "amplitude of mode"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: setup, optimum and observed information, with all results computed from them.

    setup: The model and the data before the optimisation.
    optimum: The result of the optimisation.
    observed_information: Minus the Hessian of the objective at the optimum, on the search scale; (n, n).
    posteriors: Posterior at the optimum of each record, by name.
    labels: Title and units for figures, reports and files.
    notes: Remarks on how files or DataFrames were read.
    frame_library: The library of the DataFrames that were passed; empty if there were none.
    diagnosis: Results of the checks: convergence, identifiability, residuals.
    hold_preference: For inputs with ``"auto"``, the gain in log evidence over the other interpolation.
    disturbance_gains: The gain of the objective due to each disturbance.
    parent: The joint fit to all records, if this is the part of one record.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> gp.fit_.measurements.size, gp.fit_.engine_choice.name
    (4, 'dense')
    """

    setup: FitSetup
    optimum: Optimum
    observed_information: Array
    posteriors: Mapping[str, Posterior]
    labels: Labels = field(default_factory=Labels)
    notes: tuple[str, ...] = ()
    frame_library: str = ""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    hold_preference: Mapping[str, float] = field(default_factory=dict)
    disturbance_gains: Mapping[str, float] = field(default_factory=dict)
    parent: Fit | None = None

    @property
    def joint_fit(self) -> Fit:
        """The fit to all records."""
        return self.parent or self

    @property
    def posterior(self) -> Posterior:
        """The posterior of the only record; raise if there are several."""
        first, *others = self.posteriors.values()
        return first if not others else self.setup.engine.posterior(self.hyperparameters)

    @property
    def record_names(self) -> tuple[str, ...]:
        """The names of the records."""
        return tuple(self.setup.record_setups)

    @cached_property
    def record_fits(self) -> tuple[Fit, ...]:
        """The fit of each record: its own curves and measurements, with the shared estimates."""
        if len(self.posteriors) == 1:
            return (self,)
        base = replace(self, notes=(), parent=self)
        return tuple(
            replace(base, setup=part, posteriors={n: self.posteriors[n]}, diagnosis=self.diagnosis.for_record(n))
            for n, part in self.setup.record_setups.items()
        )

    @property
    def is_on_disk(self) -> bool:
        """Whether rows are read from disk for every computation, because they do not fit into memory."""
        pairs = ((part.engine_choice.factory, part.measurements) for part in self.record_fits)
        return any(factory.has_states and own.has_only_statistics for factory, own in pairs)

    def require_full_record(self, what: str) -> None:
        """Raise if the model was saved without most of its rows."""
        if any(part.measurements.is_truncated for part in self.record_fits):
            raise DataError(
                f"this model was saved without most of its rows, to keep the file small, and {what} need all rows; "
                "fit again with the file"
            )

    def for_record(self, record: object = None) -> Fit:
        """Return the fit of one record."""
        return self.record_fits[find_record_index(self.record_names, record)]

    def with_diagnosis(self, known_results: Mapping[str, IdentifiabilityResult] | None = None) -> Fit:
        """Return the fit with its diagnosis; profile likelihoods are computed when they are needed."""
        with self.setup.limit_threads():
            state = self.setup, self.optimum, self.corrected_information, self._fitted_records
            with np.errstate(all="ignore"):
                diagnosis = diagnose_fit(*state, known_results)
            if self.prior.has_process:
                diagnosis = replace(diagnosis, widening=inflate_all(self.layout, diagnosis.checks))
            elif any(check.is_autocorrelated for check in diagnosis.checks):
                covariance_root = self.parameter_uncertainty.covariance_root
                factors = compute_inflation_factors(self.layout, covariance_root, *self._sandwich(with_modes=False))
                diagnosis = replace(diagnosis, widening=factors)
        return replace(self, diagnosis=diagnosis)

    def _sandwich(self, *, with_modes: bool) -> tuple[Array, Array]:
        """Return covariances of estimates, in their own units, under correlated and independent residuals, (k, k).

        With modes, the correlation that the estimated initial states have absorbed is included, too.
        """
        tested = [(part, part.fitted_record.tested_rows.measurements.series) for part in self.record_fits]
        pairs = [(part, item) for part, series in tested for item in series]
        usable = [each for part, item in pairs if len((each := part._residual_sensitivity(item))[1])]
        k, modes = self.parameter_uncertainty.covariance_root.shape[1], sum(group.size for group in self.prior.groups)
        usable = usable if all(jacobian.shape[1] == k + modes for jacobian, _ in usable) else []
        jacobians = [jacobian[:, : k + modes * with_modes] for jacobian, _ in usable]
        return sandwich_covariance(jacobians, [residuals for _, residuals in usable], k)

    @cached_property
    def inflation_root(self) -> Array:
        """Square root of the covariance of estimates under correlated residuals, in their own units, (k, k)."""
        laplace, factors = self.parameter_uncertainty, self.diagnosis.widening
        if self.prior.has_process:
            return np.linalg.pinv(laplace.covariance_root) @ laplace.inflated_covariance_root(factors)
        correlated, plain = self._sandwich(with_modes=True)
        values, vectors = np.linalg.eigh(correlated - plain)
        return np.linalg.cholesky(np.eye(len(plain)) + (vectors * np.maximum(values, 0.0)) @ vectors.T)

    def inflate_shifts(self, shifts: Array) -> Array:
        """Return shifts of predictions along inflated standard errors, if residuals are correlated, (k, ...).

        Shifts at alternative optima follow those along the estimates, and are not changed.
        """
        k, factors = self.parameter_uncertainty.covariance_root.shape[1], self.diagnosis.widening
        if not factors or len(shifts) < k:
            return shifts * max([1.0, *factors.values()])
        own = np.tensordot(self.joint_fit.inflation_root.T, shifts[:k], 1)
        return np.concatenate([own, shifts[k:]])

    @property
    def _fitted_records(self) -> dict[str, FittedRecord]:
        return {name: part.fitted_record for name, part in zip(self.record_names, self.record_fits, strict=True)}

    @cached_property
    def identifiability(self) -> Mapping[str, IdentifiabilityResult]:
        """The identifiability of the parameters by name; profile likelihoods are computed here."""
        if self.parent is not None:
            return self.parent.identifiability
        if self.diagnosis.identifiability is not None:
            return self.diagnosis.identifiability
        state = self.setup, self.optimum, self.corrected_information, self._fitted_records
        with track_progress("computing confidence intervals"), self.setup.limit_threads(), np.errstate(all="ignore"):
            return assess_parameters(*state, self.typical_noise, self.diagnosis, self.profile_shapes)

    @property
    def full_diagnosis(self) -> Diagnosis:
        """The diagnosis with the identifiability of all parameters."""
        return replace(self.diagnosis, identifiability=self.identifiability)

    @cached_property
    def fitted_record(self) -> FittedRecord:
        """The measurements of the only record with curves, residuals and innovations."""
        return FittedRecord(self.setup, self.optimum, self.posterior, self.measurements, self.typical_noise)

    def _residual_sensitivity(self, item: TimeSeries) -> tuple[Array, Array]:
        """Return the Jacobian of the curve at the residuals of one observable, (m, k + modes), and these residuals."""
        left, item = self.fitted_record.residuals(item), item.select(~item.is_exact)
        noise = item.noise_std_for_level(self.typical_noise(item.observable))[np.searchsorted(item.times, left.times)]
        observables = self.observables([item.observable])
        shifts = self.parameter_uncertainty.mean_jacobian(observables, left.times)[:, :, 0]
        known, times = observables.evaluate(self.hyperparameters.theta), self.prior.units.scale_times(left.times)
        modes = observables.mode_basis(known, self.prior.groups, times, with_jacobian=False)[0][0]
        return np.concatenate([shifts.T, modes], axis=1) / noise[:, None], left.values

    @cached_property
    def unexplained_std(self) -> dict[str, float]:
        """Standard deviation of correlated residuals beyond noise, by observable."""
        if self.prior.disturbances and not self.prior.n_processes:
            return {}
        scatter = self.measurements.difference_noise_std()
        noise = {} if scatter is None else dict(zip(self.measurements.names, scatter.tolist(), strict=True))
        return estimate_unexplained_std(self.diagnosis.checks, self.typical_noise, noise)

    @cached_property
    def calibrated_free_runs(self) -> dict[str, tuple[Array, Array]]:
        """Horizons and the factors of the bands of free runs at these, by observable; computed when needed."""
        return {} if self.parent is None else self.parent.calibrated_free_runs

    @property
    def converged(self) -> bool:
        """Whether the search converged, and is not clearly worse than smooth curves without equations."""
        return self.convergence == "yes"

    @property
    def convergence(self) -> str:
        """Whether the search converged: "yes", "no", or "poor fit" if smooth curves without equations fit better."""
        return "no" if not self.optimum.converged else "poor fit" if self.diagnosis.failed else "yes"

    @property
    def system(self) -> System:
        """The fitted system."""
        return self.setup.system

    @property
    def settings(self) -> FitSettings:
        """The arguments of the estimator."""
        return self.setup.settings

    @property
    def measurements(self) -> Measurements:
        """The fitted measurements."""
        return self.setup.measurements

    @property
    def engine_choice(self) -> EngineChoice:
        """The engine that was used, and the reason."""
        return self.setup.engine_choice

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the parameter vector of the optimiser."""
        return self.setup.layout

    @property
    def prior(self) -> Prior:
        """The compiled prior."""
        return self.setup.prior

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """All estimates: lengthscales in scaled time, parameters and noise levels in the user's units."""
        return self.layout.unpack(self.optimum.x)

    @cached_property
    def log_evidence(self) -> float:
        """The log evidence at the optimum, in the user's units.

        Diffuse modes enter with a unit-information prior, which contains as much information as one measurement, not
        with the large standard deviation that the search uses (`lodekit.prior.diffuse_modes`).
        """
        return sum(posterior.value for posterior in self.posteriors.values()) + self.restricted_likelihood_correction

    @cached_property
    def restricted_likelihood_correction(self) -> float:
        """The difference in log evidence between a proper prior of diffuse modes and that of the search."""
        return sum(part.fitted_record.restricted_likelihood_correction for part in self.record_fits)

    @cached_property
    def residual_dof_fraction(self) -> float:
        """Residual degrees of freedom over the number of measurements; variances are divided by it."""
        return residual_dof_fraction(self.layout, self.joint_fit.setup.engine.size, self.optimum.at_bound)

    @cached_property
    def corrected_information(self) -> Array:
        """The observed information, corrected for degrees of freedom; standard errors are computed from it."""
        return self.observed_information * self.residual_dof_fraction

    @cached_property
    def covariance(self) -> Array:
        """The covariance of all estimates on the search scale, shape (n, n)."""
        return invert_information(self.corrected_information, ~self.optimum.at_bound)

    @cached_property
    def parameter_uncertainty(self) -> LaplaceApproximation:
        """The uncertainty of all estimates (Laplace approximation), and its effect on predictions."""
        state = self.joint_fit.setup.objective, self.optimum, self.corrected_information, self.setup.engine.posterior
        alternatives = [(each.point, each.below) for each in self.diagnosis.alternatives if each.values]
        return LaplaceApproximation(*state, alternatives, is_single_record=self.parent is not None)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The parameters of the system by name, with standard errors and 95 % intervals."""
        return self.estimates_at(0.95) if self.parent is None else self.parent.estimates

    @cached_property
    def profile_shapes(self) -> tuple[Array, Array]:
        """Degrees of freedom of the standard errors of estimated parameters, and bends of profiles, (p,) each."""
        with self.setup.limit_threads():
            return satterthwaite_dof(self.setup.objective, self.optimum.x, self.covariance)

    def estimates_at(self, confidence: float) -> dict[str, Estimate]:
        """Return the parameters of the system by name, with intervals of a given confidence level."""
        optimum, points, layout = self.optimum, self.joint_fit.measurements.n_distinct, self.layout
        quantiles = self.interval_quantiles(confidence)
        wider = np.array([self.diagnosis.widening.get(name, 1.0) for name in quantiles])
        known = self.corrected_information, optimum.at_bound, points, self.joint_fit.profile_shapes[0], wider
        found = estimate_parameters(layout, optimum.x, *known, confidence)
        return apply_identifiability(found, self.identifiability, points >= layout.size, confidence, quantiles)

    def interval_quantiles(self, confidence: float) -> dict[str, float]:
        """Return half-widths of intervals of estimated parameters by name, in standard errors before widening."""
        names = [self.layout.names[number] for number in self.layout.free_parameters]
        wider = [self.diagnosis.widening.get(name, 1.0) for name in names]
        quantiles = map(partial(inflated_quantile, confidence), self.joint_fit.profile_shapes[0], wider)
        return dict(zip(names, quantiles, strict=True))

    def profile_of_interval(self, name: str) -> tuple[Array, Array]:
        """Return values of a parameter, and the profile likelihood that gave its interval, shape (n,) each."""
        # Imported here, since most fits need no profiles.
        from scipy.interpolate import PchipInterpolator

        found, (levels, low, high) = self.estimates[name], np.array(self.identifiability[name].ladder).T
        # Standard errors include the degrees of freedom used up by estimation, which the evidence does not.
        roots = np.concatenate([-levels[::-1], [0.0], levels]) / np.sqrt(self.residual_dof_fraction)
        grid = np.linspace(roots[0], roots[-1], 401)
        values = PchipInterpolator(roots, np.concatenate([low[::-1], [found.value], high]))(grid)
        margin = 0.3 * (found.interval[1] - found.interval[0])
        shown = (values > found.interval[0] - margin) & (values < found.interval[1] + margin)
        return values[shown], -0.5 * grid[shown] ** 2

    @cached_property
    def parameter_covariance(self) -> Array:
        """The covariance of all parameters in the user's units, shape (p, p); widened like their standard errors.

        It is zero for fixed parameters. If the data do not identify a parameter, its variance is large but finite, so
        that identified combinations such as a ratio keep a correct variance.
        """
        return self.parameter_uncertainty.parameter_covariance(self.diagnosis.widening)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Estimated noise levels by name, in the user's units."""
        return self.prior.noise.levels_by_name(self.hyperparameters.noise_std)

    @cached_property
    def described_hyperparameters(self) -> dict[str, float]:
        """Lengthscales and amplitudes (standard deviations) by name, in the user's units."""
        prior, hyper, found = self.prior, self.hyperparameters, {}
        names = [f"free function {i}" for i in range(1, prior.n_processes + 1)]
        names = names if prior.channels is None else list(self.setup.reduced_system.channels)
        for name, ell, sigma in zip(names, hyper.lengthscales, hyper.amplitudes, strict=True):
            found[f"lengthscale of {name}"] = prior.units.unscale_durations(float(ell))
            found[f"amplitude of {name} (std)"] = float(sigma)
        for i, sigma in enumerate(hyper.mode_amplitudes, 1):
            found[f"{MODE_STD_LABEL} {i} (std)"] = float(sigma)
        own = prior.observables.disturbances
        if own is not None:
            lengths = dict(zip(own.coloured_index, hyper.disturbance_lengthscales, strict=True))
            for number, (name, sigma) in enumerate(zip(own.names, hyper.disturbance_amplitudes, strict=True)):
                if number in lengths:
                    found[f"lengthscale of {name}"] = prior.units.unscale_durations(float(lengths[number]))
                found[f"amplitude of {name} (std)"] = float(sigma)
        # Amplitudes estimated as zero are at a bound of the search.
        unused = [each.name for each in self.disturbances.values() if not each.deviation]
        return found | {f"amplitude of {name} (std)": 0.0 for name in unused}

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about the fit, in sentences; empty if there are none."""
        if self.parent is not None:
            return self.parent.warnings
        state = self.setup, self.optimum, self.posteriors.values(), self.estimates, self.full_diagnosis
        # Without free functions, the warning of correlated residuals is sufficient.
        found = collect_warnings(*state, self.unexplained_std if self.prior.n_processes else {}, self.clock)
        told = self.labels.warnings.splitlines()
        if any(FAILED_SENSOR in text for text in told):
            # Outliers are these numbers, or follow from the noise level that they increase.
            found = [text for text in found if "implausible for normal noise" not in text]
        return [*told, *found]

    def observables(self, names: Sequence[str]) -> Observables:
        """Return compiled observables in the user's units."""
        return self.setup.observable_compiler.compile_unscaled(names, self.prior.units)

    @cached_property
    def units(self) -> dict[str, str]:
        """The units of time, channels and parameters by name, as far as they are known or follow from known ones."""
        return {**derive_units(self.system, self.labels.units), **self.labels.units}

    @cached_property
    def clock(self) -> TimeReference:
        """Origin and unit of time, if the labels have them."""
        return TimeReference.from_labels(self.labels.origin, self.labels.units.get("t"))

    def parse_times(self, t: ArrayLike) -> Array:
        """Return the user's times as numbers; dates and durations are converted as in the fit.

        Shapes: t (n,).
        """
        if hasattr(t, "columns") and len(t.columns) != 1:
            raise DataError("expected times, got a DataFrame; pass its index, or its column of times")
        numbers = self.clock.parse_times(t)
        return as_times(t) if numbers is None else numbers

    def typical_noise(self, observable: str) -> float:
        """Return the noise standard deviation of a new measurement, in the user's units.

        It is the estimated level of the observable; else the root mean square of known noise, its own or that of all
        observables; else the highest level.
        """
        if self.prior.noise.shared and self.noise:
            return self.noise["shared"]
        if observable in self.noise:
            return self.noise[observable]
        statistics = self.measurements.observable_statistics
        noise = {item.observable: item.known_noise for item in statistics if not np.isnan(item.known_noise)}
        known = [noise[observable]] if observable in noise else list(noise.values())
        return float(np.sqrt(np.mean(np.square(known)))) if known else max(self.noise.values(), default=0.0)

    @cached_property
    def disturbances(self) -> dict[str, Disturbance]:
        """The estimated disturbances by name, and whether each is needed."""
        state = self.hyperparameters, self.covariance, self.optimum.at_bound, self.disturbance_gains
        confounded = self.setup.structural_identifiability.scale_confounded
        return summarize_disturbances(self.prior, self.layout, *state, confounded)

    @property
    def described_inputs(self) -> dict[str, dict[str, Any]]:
        """The known inputs by name: interpolation, number of samples, and number of missing ones."""
        found: dict[str, dict[str, Any]] = {}
        parts = self.measurements.records.values()
        for name, signal in self.measurements.inputs.items():
            # For rows on disk, samples without a change are not kept.
            samples = sum(each.count for part in parts for each in part.input_statistics if each.observable == name)
            missing = sum(part.inputs[name].missing for part in parts)
            found[name] = {"kind": signal.kind, "samples": samples, "missing": missing}
            if not any(part.inputs[name].changes(*part.window) for part in parts):
                found[name]["changes"] = False
            if name in self.hold_preference:
                found[name]["advantage"] = float(self.hold_preference[name])
        return found

    @property
    def input_notes(self) -> list[str]:
        """One sentence about each known input and each disturbance."""
        found = [describe_input(name, **known) for name, known in self.described_inputs.items()]
        known = self.labels.units, self.system, self.measurements.names
        return found + [each.sentence(*known) for each in self.disturbances.values()]

    @property
    def remarks(self) -> list[str]:
        """Notes on signs of parameters, names of unmeasured channels, and the channels that free functions drive."""
        driven, system = dict[int, dict[str, None]](), self.setup.reduced_system
        if self.prior.n_processes and self.prior.channels is None:
            for row, column, *_ in system.parametrization.free.terms():
                driven.setdefault(column, {})[system.channels[row]] = None
        text = "free function {}: an unknown function of time that drives {}"
        free = [text.format(number + 1, join_list(list(names))) for number, names in sorted(driven.items())]
        return [*self.diagnosis.notes, *self.setup.unmeasured_name_notes, *free]


def fit_with_hold_selection(
    system: System, settings: FitSettings, measurements: Measurements, labels: Labels | None = None
) -> Fit:
    """Return a fit, choosing the interpolation of inputs that are given as ``"auto"``.

    First all of these inputs are held, or all are linear, whichever is more likely; if there are several, each one may
    then change on its own.
    """
    kinds = settings.parse_inputs(system)
    opened = [name for name, kind in kinds.items() if kind == "auto"]
    if not opened:
        return fit_measurements(build_setup(system, settings, measurements), labels=labels)

    def attempt(chosen: Mapping[str, str]) -> Fit:
        own = measurements.with_known_inputs({**kinds, **chosen})
        return fit_measurements(build_setup(system, settings, own), labels=labels)

    both = [dict.fromkeys(opened, kind) for kind in ("linear", "hold")]
    found = [(attempt(both[0]), both[0])]
    try:
        found.append((attempt(both[1]), both[1]))
    except EquationError:
        # A jump of the input would make a channel infinite: only linear interpolation is possible.
        return found[0][0]
    if len(opened) > 1:
        best = max(found, key=lambda item: item[0].log_evidence)[1]
        for name in opened:
            other = {**best, name: "hold" if best[name] == "linear" else "linear"}
            found.append((attempt(other), other))
    fit, chosen = max(found, key=lambda item: item[0].log_evidence)
    best_rivals = {n: max(other.log_evidence for other, kind in found if kind[n] != chosen[n]) for n in opened}
    return replace(fit, hold_preference={name: fit.log_evidence - value for name, value in best_rivals.items()})


def fit_measurements(setup: FitSetup, initial_point: Array | None = None, labels: Labels | None = None) -> Fit:
    """Return a fit to measurements; everything is estimated."""
    # Independently of the measurements: all channels must exist under the prior.
    for latent in () if setup.engine_task.channel_prior else setup.engine_task.latents:
        latent.check_order(2 * max(setup.reduced_system.parametrization.degrees))
    with track_progress("fitting") as advance:
        with setup.limit_threads():
            optimum, curvature, needs = maximize_objective(setup, initial_point)
            if setup.layout.free_parameters:
                optimum, curvature = canonicalize_optimum(setup, optimum, curvature)
        advance(1, "computing standard errors")
        for _ in range(3):
            fit = replace(assemble_fit(setup, optimum, curvature, labels), disturbance_gains=needs).with_diagnosis()
            # Equivalent parameters may have a larger objective, due to priors of parameters or states. Of an
            # oscillation and its aliases, the slowest is the estimate.
            better = next((rival for rival in fit.diagnosis.alternatives if not rival.is_alias), None)
            if better is None or -better.below < options.SEARCH.equivalent_switch_gain:
                break
            with setup.limit_threads():
                optimum, curvature = switch_optimum(setup, optimum, np.array(better.point))
        return fit


def parse_units(fit: Fit, units: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return units by name, with those of parameters that follow from others."""
    if units is None:
        return fit.units
    if not isinstance(units, Mapping) or not all(isinstance(text, str) for pair in units.items() for text in pair):
        raise LodekitError(f"expected units as a dict of names to texts, such as {{'t': 's'}}, got {units!r}")
    return {**derive_units(fit.system, units), **units}


def fit_at_point(
    setup: FitSetup, x: Array, labels: Labels | None = None, verdicts: Mapping[str, IdentifiabilityResult] | None = None
) -> Fit:
    """Return a fit at a given point; nothing is estimated."""
    with setup.limit_threads():
        optimum = Optimum(x, setup.objective.value(x), True, "kept", 1, np.zeros(setup.layout.size, dtype=bool))
        curvature = refine_information(setup, optimum, observed_information(setup.objective, x))
    return assemble_fit(setup, optimum, curvature, labels).with_diagnosis(verdicts or {})


def update_fit(
    fit: Fit, new: Measurements, settings: FitSettings | None = None, *, reestimate: bool = True, record: object = None
) -> Fit:
    """Return a fit to more measurements; the search starts from the current estimates."""
    if fit.is_on_disk:
        raise LodekitError(
            "the rows of this fit are on disk, because they exceed the memory, and cannot be added to; fit again with "
            "all files, or give new rows to gp.stream()"
        )
    if settings is not None and settings.prior != fit.settings.prior:
        raise LodekitError(
            f"the prior was changed from {fit.settings.prior!r} to {settings.prior!r} after the fit, and "
            "estimates with one do not apply to the other; call fit with all measurements"
        )
    for role in ("inputs", "disturbances"):
        before, now = getattr(fit.settings, role), getattr(settings or fit.settings, role)
        if (now or {}) != (before or {}):
            raise LodekitError(f"{role} were changed from {before} to {now} after the fit; call fit with all data")
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    new = new.with_known_inputs(kinds, required=False) if kinds else new
    joined = _add_to_record(fit, new, record)
    setup = build_setup(fit.system, settings or fit.settings, joined, **fit.setup.scaling)
    old = fit.hyperparameters
    hyper = replace(old, noise_std=setup.prior.noise.transfer_levels(fit.prior.noise, old.noise_std))
    x = setup.layout.pack(hyper)
    if not np.isfinite(setup.engine.value(setup.layout.unpack(x))):
        # The posterior raises an error with the cause.
        for part in setup.record_setups.values():
            posterior = part.engine.posterior(setup.layout.unpack(x))
            posterior.mean(part.prior.observables, np.array(part.measurements.window))
    if reestimate and setup.layout.size:
        return fit_measurements(setup, x, fit.labels)
    updated = fit_at_point(setup, x, fit.labels, fit.identifiability)
    return replace(updated, disturbance_gains=fit.disturbance_gains)


def _add_to_record(fit: Fit, new: Measurements, record: object) -> Measurements:
    """Return the measurements of a fit with new ones, added to an existing record or as a new one."""
    if len(new.records) > 1:
        raise DataError("expected the measurements of one record, got several; call update for each: record=NAME")
    records = {name: part.measurements for name, part in fit.setup.record_setups.items()}
    if isinstance(record, str) and record not in records:
        return RecordSet.from_records({**records, record: new})
    name = fit.record_names[find_record_index(fit.record_names, record)]
    check_no_overlap(records[name], new)
    return RecordSet.from_records(records | {name: records[name] + new})


def assemble_fit(setup: FitSetup, optimum: Optimum, information: Array, labels: Labels | None = None) -> Fit:
    """Return a fit at an optimum; raise if the log evidence is not finite, or exact values are not met.

    Shapes: information (n, n).
    """
    hyper, posteriors = setup.layout.unpack(optimum.x), {}
    for name, part in setup.record_setups.items():
        try:
            posteriors[name] = part.engine.posterior(hyper)
        except AccuracyError as problem:
            raise AccuracyError(f"record {name}: {problem}" if setup.parts else str(problem)) from None
    if not all(np.isfinite(posterior.value) for posterior in posteriors.values()):
        raise FitError("the evidence is not finite at the optimum; check units and starting values")
    for posterior in posteriors.values():
        posterior.check_exact_values()
    return Fit(setup, optimum, information, posteriors, labels or Labels())
