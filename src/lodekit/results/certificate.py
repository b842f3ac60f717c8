"""Certificate of a fit: identities proved by exact algebra, and equation residuals measured on the returned curves.

White noise has no values; equations with it are replaced by combinations in which it does not occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import format_sum
from lodekit.errors import AlgebraError, LodekitError
from lodekit.prior.disturbances import verify_disturbance_response
from lodekit.results.equation_residuals import (
    STRICT_TOLERANCE,
    CurveResiduals,
    EquationEvaluator,
    compute_curve_residuals,
    compute_derivative_residuals,
    compute_sample_residuals,
    concatenate_residuals,
)
from lodekit.results.fit import Fit
from lodekit.results.prediction import predict, sample
from lodekit.results.residuals import is_function_of_time
from lodekit.results.summary import describe_curve_residuals, describe_solution_sense
from lodekit.support.arguments import Array, check_seed
from lodekit.support.progress import track_progress
from lodekit.system.grammar import Equation, parse_equations
from lodekit.system.linear import list_operator_terms
from lodekit.system.state_space import eliminate_channels
from lodekit.system.system import System


def pointwise_equations(fit: Fit) -> tuple[Equation, ...]:
    """Return the written equations; those with white noise are replaced by their consequences without it."""
    names = fit.setup.channels_without_values
    if not names:
        return fit.system.written
    held = [i for i, equation in enumerate(fit.system.written) if equation.mentions(names)]
    kept = [equation for i, equation in enumerate(fit.system.written) if i not in held]
    return (*kept, *_eliminate_channels(fit.system, held, names))


def _eliminate_channels(system: System, rows: Sequence[int], names: Sequence[str]) -> list[Equation]:
    """Return the equations that follow after some channels are eliminated."""
    own = system.operator
    part = OperatorMatrix(own.ring, [own.rows[i] for i in rows], [own.denominators[i] for i in rows], own.width)
    hidden = [system.channels.index(name) for name in names]
    operator, sides = eliminate_channels(part, [system.forcing[i] for i in rows], hidden)
    texts = []
    for i, side in enumerate(sides):
        parts = (list_operator_terms(operator.coefficients(i, j), name) for j, name in enumerate(system.channels))
        if terms := [term for part in parts for term in part]:
            texts.append(f"{format_sum(terms)} = {side}")
    return parse_equations(texts) if texts else []


def list_proved_identities(fit: Fit) -> tuple[str, ...]:
    """Return the identities that exact algebra has proved about the solutions of a fit."""
    reduced = fit.setup.reduced_system
    try:
        found = reduced.verify()
    except AlgebraError:
        # Without free functions, a fit only needs a state matrix.
        if reduced.free_functions:
            raise
        found = (verify_disturbance_response(reduced, {}), "x has as many entries as a solution has initial values")
    if fit.prior.disturbances:
        system = fit.system.given(tuple(fit.measurements.inputs)) if fit.measurements.inputs else fit.system
        found = (*found, verify_disturbance_response(system, fit.prior.disturbances))
    return found


_MAX_TIMES = 2000


@dataclass(frozen=True, repr=False)
class Certificate:
    """Evidence that the posterior satisfies the equations: exact identities, and measured residuals of its curves.

    The identities are proved by exact algebra, for all solutions at once. The measurement is independent of this: it
    takes the curves that `predict` and `sample` return, differentiates Chebyshev polynomials through their values, and
    substitutes the derivatives into the equations as written. Samples that are too rough for this are drawn together
    with their derivatives.

    Parameters
    ----------
    identities : tuple of str
        The identities that exact algebra has proved.
    mean : CurveResiduals
        Equation residuals of the posterior mean.
    samples : CurveResiduals or None
        Equation residuals of functions drawn from the posterior, each at its own drawn parameters; None without
        samples.
    size : int
        Number of samples.
    why : str
        Why requested samples were not measured.
    own : bool
        Whether every sample has its own parameters, which its equations use.
    sense : str
        In which sense the equations hold if white noise drives some of them; otherwise empty.
    input_error : float
        The largest difference between curves of known inputs and their samples, relative to the largest sample; NaN
        without known inputs.
    """

    identities: tuple[str, ...]
    mean: CurveResiduals
    samples: CurveResiduals | None = None
    size: int = 0
    why: str = ""
    own: bool = False
    sense: str = ""
    input_error: float = np.nan

    @property
    def residual(self) -> float:
        """The largest measured relative residual, of the mean and the samples."""
        return max(part.residual for part in self._parts)

    @property
    def uncertainty(self) -> float:
        """The error of `residual` due to numerical differentiation."""
        return max(part.uncertainty for part in self._parts)

    @property
    def is_strict(self) -> bool:
        """Whether residuals are below 1e-6 and explained by differentiation: below 100 times its error, or 1e-11.

        Samples that are too rough to be measured are ignored. Curves of known inputs must match their samples to 1e-11.
        """
        if self.input_error > 1e-11:
            return False
        clear = [part for part in self._parts if part is self.mean or part.uncertainty < STRICT_TOLERANCE]
        return all(part.residual < min(STRICT_TOLERANCE, max(100.0 * part.uncertainty, 1e-11)) for part in clear)

    @property
    def is_inconclusive(self) -> bool:
        """Whether the error of numerical differentiation hides the residual: curves under disturbances have kinks."""
        return not self.is_strict and not self.input_error > 1e-11 and self.residual <= self.uncertainty

    @property
    def _parts(self) -> list[CurveResiduals]:
        return [self.mean, *([] if self.samples is None else [self.samples])]

    def __str__(self) -> str:
        lines = ["Proved exactly:", *(f"  {line}" for line in self.identities)]
        if self.sense:
            lines.append(f"Sense: {self.sense}.")
        if not self.mean.residuals.shape[1]:
            return "\n".join(lines)
        count = len(self.mean.times)
        where = "one time" if count == 1 else f"{count} times"
        lines.append(f"Measured on the returned curves, at {where}, relative to the terms:")
        lines.append(f"  mean       {describe_curve_residuals(self.mean)}")
        if self.samples is not None:
            noun = "sample " if self.size == 1 else "samples"
            lines.append(f"  {self.size} {noun}  {describe_curve_residuals(self.samples)}")
            if self.own:
                lines.append("  Each sample is checked with the parameters that were drawn with it.")
        if self.why:
            lines.append(f"  no samples: {self.why}")
        if np.isfinite(self.input_error):
            lines.append(f"  known inputs differ from what was logged by at most {self.input_error:.1e}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        # The numbers themselves are available as attributes.
        return str(self)


@track_progress("checking that the curves satisfy the equations")
def compute_certificate(
    fit: Fit,
    t: ArrayLike | None = None,
    *,
    samples: int = 3,
    random_state: int | None = 0,
    record: str | int | None = None,
) -> Certificate:
    """Return a certificate: identities proved about the equations, and the equation residuals of returned curves.

    Parameters
    ----------
    t : array-like, shape (n,), optional
        Times at which the curves are substituted into the equations; by default 201 from the first to the last
        measurement. More than 2000 times are thinned evenly.
    samples : int
        Number of functions drawn from the posterior that are measured in addition to its mean.
    random_state : int, optional
        Random seed of the samples.
    record : str or int, optional
        The record, as in `predict`; all of them by default.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> found = gp.certificate()
    >>> found.is_strict, found.residual < 1e-8
    (True, True)
    >>> print(found)  # doctest: +ELLIPSIS
    Proved exactly:
    ...
    Measured on the returned curves, at 201 times, relative to the terms:
      mean       at most ...; numerical differentiation error: ...
      3 samples  at most ...; numerical differentiation error: ...
    """
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 0:
        raise LodekitError(f"expected samples as a whole number, zero or more, got {samples!r}")
    check_seed(random_state)
    # The same samples are requested several times.
    seed = random_state if isinstance(random_state, int) else int(np.random.default_rng(random_state).integers(2**62))
    if len(fit.record_fits) > 1 and record is None:
        parts = [compute_certificate(part, t, samples=samples, random_state=seed) for part in fit.record_fits]
        return join_certificates(parts)
    fit = fit.for_record(record)
    mean = compute_mean_residuals(fit, t)
    sense = describe_solution_sense(fit, pointwise_equations(fit))
    found = Certificate(list_proved_identities(fit), mean, sense=sense, input_error=_compute_input_error(fit))
    if not samples or not mean.residuals.shape[1]:
        return found
    try:
        drawn = _compute_sample_residuals(fit, mean, int(samples), seed)
    except LodekitError as problem:
        return replace(found, why=str(problem))
    return replace(found, samples=drawn, size=int(samples), own=bool(fit.layout.free_parameters))


def join_certificates(parts: Sequence[Certificate]) -> Certificate:
    """Return one certificate of all records, which is strict if each of them is."""
    if len(parts) == 1:
        return parts[0]
    drawn = [part.samples for part in parts if part.samples is not None]
    why = next((part.why for part in parts if part.why), "")
    samples = concatenate_residuals(drawn) if len(drawn) == len(parts) else None
    mean = concatenate_residuals([part.mean for part in parts])
    error = np.fmax.reduce([part.input_error for part in parts])
    return replace(parts[0], mean=mean, samples=samples, why=why, input_error=error)


def _compute_input_error(fit: Fit) -> float:
    """Return the largest relative difference of curves of known inputs from their samples, at midpoints if held."""
    (first, last), errors = fit.measurements.available_window, [np.nan]
    for name, signal in fit.measurements.inputs.items():
        ends = np.append(signal.times[1:], last)
        times = 0.5 * (signal.times + ends) if signal.kind == "hold" else signal.times
        inside = np.flatnonzero((times >= first) & (times <= last))
        if len(inside):
            inside = inside[np.linspace(0, len(inside) - 1, min(len(inside), _MAX_TIMES)).round().astype(int)]
            apart = np.abs(predict(fit, times[inside], [name])[:, 0] - signal.values[inside])
            errors.append(float(apart.max() / (np.abs(signal.values).max() or 1.0)))
    return float(np.fmax.reduce(errors))


def compute_mean_residuals(fit: Fit, t: ArrayLike | None = None) -> CurveResiduals:
    """Return the residuals of the equations as written, for the posterior mean that `predict` returns.

    Shapes: t (n,).
    """
    times = np.linspace(*fit.measurements.available_window, 201) if t is None else fit.parse_times(t)
    if not len(times):
        raise LodekitError("expected at least one time at which to check the equations, got none")
    if len(times) > _MAX_TIMES:
        times = np.sort(times)[np.linspace(0, len(times) - 1, _MAX_TIMES).round().astype(int)]
    written = _make_evaluator(fit)
    if not written.equations:
        return CurveResiduals(times, np.zeros((len(times), 0)), np.zeros((len(times), 0)), fit.prior.units.time_scale)
    names, length, breaks = list(written.channels), fit.prior.units.time_scale, _nonsmooth_times(fit)
    return compute_curve_residuals(written, lambda at: predict(fit, at, names), times, length, breaks)


def _compute_sample_residuals(fit: Fit, mean: CurveResiduals, size: int, seed: int) -> CurveResiduals:
    """Return the equation residuals of drawn functions, on pieces about as long as those of the mean."""
    times, lengths = mean.times, [mean.length * factor for factor in (1.0, 0.5, 0.25)]
    if _is_rough(fit):
        return _compute_rough_sample_residuals(fit, times, size, seed)

    def draw(at: Array) -> tuple[Array, list[EquationEvaluator]]:
        drawn, own = sample(fit, at, size, seed, list(_make_evaluator(fit).channels), return_parameters=True)
        return drawn, [_make_evaluator(fit, {name: float(own[name][i]) for name in own}) for i in range(size)]

    breaks = [_nonsmooth_times(fit)]
    driven = fit.prior.observables.input_response
    if driven is not None and fit.system.delayed_channels:
        # Delays are drawn as well, independently of the times, and each has its own corners.
        _, own = sample(fit, times[:1], size, seed, return_parameters=True)
        theta = np.stack([own[name] for name in fit.layout.names], axis=1)
        breaks += [driven.breakpoints(each) for each in theta]
    return compute_sample_residuals(draw, times, lengths, np.unique(np.concatenate(breaks)))


def _compute_rough_sample_residuals(fit: Fit, times: Array, size: int, seed: int) -> CurveResiduals:
    """Return the equation residuals of samples that are too rough to differentiate, drawn with their derivatives."""
    times = times[np.linspace(0, len(times) - 1, min(len(times), 20) + 2).round().astype(int)][1:-1]
    written = _make_evaluator(fit)
    texts = [[f"{name}{mark}" for name in written.channels] for mark in ("'" * k for k in range(written.order + 1))]
    known = {text: is_function_of_time(fit, text) for row in texts for text in row}
    asked = [text for text, is_there in known.items() if is_there]
    drawn, own = sample(fit, times, size, seed, asked, return_parameters=True)
    curves = np.full((len(texts), size, len(times), len(written.channels)), np.nan)
    for order, row in enumerate(texts):
        for place, text in enumerate(row):
            if known[text]:
                curves[order, :, :, place] = drawn[:, :, asked.index(text)]
    equations = [_make_evaluator(fit, {name: float(own[name][i]) for name in own}) for i in range(size)]
    return compute_derivative_residuals(equations, times, curves)


def _make_evaluator(fit: Fit, values: Mapping[str, float] | None = None) -> EquationEvaluator:
    """Return the equations at some values of the parameters, the estimated ones by default."""
    learned = dict(zip(fit.layout.names, fit.hyperparameters.theta.tolist(), strict=True))
    channels = [name for name in fit.system.channels if name not in fit.setup.channels_without_values]
    return EquationEvaluator(pointwise_equations(fit), channels, learned if values is None else values)


def _is_rough(fit: Fit) -> bool:
    return bool(fit.prior.disturbances) or any(not latent.is_band_limited for latent in fit.prior.kernels)


def _nonsmooth_times(fit: Fit) -> Array:
    """Return the times at which curves may be less smooth than elsewhere.

    These are jumps and corners of known inputs and, if the prior is rough, the times of the measurements.
    """
    found = [fit.measurements.time_grid()] if _is_rough(fit) else []
    # Disturbances begin with the record.
    found += [np.array([fit.prior.units.start])] if fit.prior.disturbances else []
    driven = fit.prior.observables.input_response
    if driven is not None:
        found.append(driven.breakpoints(fit.hyperparameters.theta))
    return np.unique(np.concatenate(found)) if found else np.zeros(0)
