"""Residuals: of the equations in closed form, and of the measurements, with their diagnosis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.tables.frames import make_frame
from lodekit.diagnostics.messages import Findings
from lodekit.errors import LodekitError
from lodekit.prior.disturbances import WHITE_NOISE
from lodekit.prior.observables import EquationResiduals
from lodekit.results.fit import Fit
from lodekit.results.prediction import predict, sample
from lodekit.support.arguments import Array


def equation_residual(
    fit: Fit,
    t: ArrayLike | None = None,
    *,
    samples: int = 0,
    random_state: int | None = None,
    relative: bool = False,
    record: str | int | None = None,
) -> Array:
    """Return the residual of the equations, A(d) f - b(t) in closed form, for the posterior mean f or for samples.

    `residual` and `equation_residual` are the same method; `residuals` are those of the measurements. Derivatives are
    those of the model, so this checks its algebra and its rounding errors, but not its curves: `certificate`
    differentiates the curves. White noise has no values, so an equation that contains it is evaluated as one
    observable, in which the noise cancels, and is divided by those of its terms that have values.

    Parameters
    ----------
    t : array-like, shape (n,)
        Times.
    samples : int
        Number of samples to use instead of the mean, each with its own parameters; zero for the mean.
    random_state : int, optional
        Random seed of the samples.
    relative : bool
        Whether to divide each residual by the sum of the sizes of the terms of its equation.
    record : str or int, optional
        As in `predict`.

    Returns
    -------
    array, shape (n, equations), or (samples, n, equations)

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> bool(abs(gp.residual([0.5, 1.5], relative=True)).max() < 1e-12)
    True
    """
    if t is None:
        raise LodekitError(
            "expected times t: residual(t) returns the residuals of the equations at these times; for measured minus "
            "predicted values call residuals(), in the plural, and for their tests diagnose()"
        )
    fit = fit.for_record(record)
    equations, times = EquationResiduals(fit.system), fit.parse_times(t)
    has_white_noise = WHITE_NOISE in fit.prior.disturbances.values()
    # Some terms of equations with white noise have no values, but the equation as a whole has: it is an observable.
    exist, texts = list(range(len(equations.observables))), list[str]()
    if has_white_noise:
        exist = [number for number in exist if is_function_of_time(fit, equations.observables[number])]
        sides = [(equation.text, equation.right is None) for equation in fit.system.written]
        texts = [text if zero else f"({text.split('=')[0]}) - ({text.split('=')[1]})" for text, zero in sides]
    asked = [*texts, *(equations.observables[number] for number in exist)]
    if samples:
        values, own = sample(fit, times, samples, random_state, asked, return_parameters=True)
        theta = np.stack([own[name] for name in fit.layout.names], axis=1) if own else np.zeros((samples, 0))
    else:
        values, theta = np.asarray(predict(fit, times, asked))[None], fit.hyperparameters.theta[None]
    terms = np.zeros((*values.shape[:2], len(equations.derivatives)))
    terms[:, :, exist] = values[:, :, len(texts) :]
    pairs = [(each, value[None]) for each, value in zip(theta, terms, strict=True)]
    if not has_white_noise:
        left = np.concatenate([equations.residual(each, times, value, relative=relative) for each, value in pairs])
    else:
        left = values[:, :, : len(texts)]
    if has_white_noise and relative:
        sizes = np.array([equations.magnitudes(each, times, value)[0] for each, value in pairs])
        left = left / np.where(sizes > 0, sizes, 1.0)
    return np.asarray(left if samples else left[0])


def is_function_of_time(fit: Fit, text: str) -> bool:
    """Return whether an observable is a function of time, unlike white noise."""
    try:
        fit.observables([text])
    except LodekitError:
        return False
    return True


def residuals(
    fit: Fit, *, standardized: bool = False, record: str | int | None = None, as_frame: bool | str | None = None
) -> Any:
    """Return the residuals, measured minus fitted values, with their times, by observable.

    `diagnose` tests them, and `plot_residuals` plots them; if free functions adapt the curve to the data, both use
    innovations instead. `equation_residual` returns the residuals of the equations.

    Parameters
    ----------
    standardized : bool
        Whether to divide by the standard deviation of the noise, estimated or known; exact values are omitted.
    record : str or int, optional
        As in `predict`.
    as_frame : bool or str, optional
        As in `predict`: one column for each observable, with missing values where only others were measured.

    Returns
    -------
    dict of str to (times, values)
        Two arrays of shape (n,), in the order of the measurements; n may differ between observables.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> times, values = gp.residuals()["x"]
    >>> times.tolist(), bool(abs(values).max() < 0.2)
    ([0.0, 1.0, 2.0, 3.0], True)
    """
    fit = fit.for_record(record)
    if fit.measurements.has_only_statistics:
        raise LodekitError("the measurements were summed and not kept, so there are no residuals")
    found = {}
    for item in fit.measurements.series:
        left = item.values - np.asarray(predict(fit, item.times, item.observable))
        noise = item.noise_std_for_level(fit.typical_noise(item.observable))
        kept = noise > 0 if standardized else np.ones(len(left), dtype=bool)
        found[item.observable] = item.times[kept], left[kept] / (noise[kept] if standardized else 1.0)
    if not as_frame:
        return found
    times = np.unique(np.concatenate([own for own, _ in found.values()]))
    columns = {name: np.full(len(times), np.nan) for name in found}
    for name, (own, values) in found.items():
        columns[name][np.searchsorted(times, own)] = values
    return make_frame({"t": fit.clock.to_dates(times) or times, **columns}, as_frame)


def diagnose(fit: Fit) -> Findings:
    """Test the residuals of the fit; return one sentence for each observable, with the statistics behind it.

    Without free functions, these are the residuals of the fitted curve. Otherwise they are innovations, measurements
    minus their predictions from all earlier ones: a curve that adapts to the data has residuals that are smaller than
    the noise, and correlated.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 80)
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> x = np.exp(-0.5 * t) + 0.01 * np.random.default_rng(0).standard_normal(80)
    >>> found = lk.LODEGP(system, random_state=0).fit(t, x).diagnose()
    >>> found.is_independent, found.sentences[0][:43]
    (True, 'residuals of x look like independent noise ')
    """
    return Findings.of(fit.diagnosis, fit.clock.unit)
