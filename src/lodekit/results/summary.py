"""Summary of a fit: table (text and HTML), one line, plain values, and the names that statsmodels uses.

It also has the sentences about validations and certificates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import bdtr

from lodekit.data.tables.frames import make_frame
from lodekit.diagnostics.messages import Findings
from lodekit.errors import LodekitError
from lodekit.prior.disturbances import WHITE_NOISE
from lodekit.results.equation_residuals import CurveResiduals
from lodekit.results.fit import MODE_STD_LABEL, Fit
from lodekit.support.arguments import Array
from lodekit.support.html import glossary_html, html_list, html_paragraph, html_table, notebook_card
from lodekit.support.text import (
    as_sentence,
    format_below,
    format_count,
    format_percent,
    format_quantity,
    format_uncertain,
    join_list,
    round_to_error,
)
from lodekit.system.dimensions import white_noise_unit
from lodekit.system.display import equations_to_mathml
from lodekit.system.grammar import Equation
from lodekit.uncertainty.estimates import Estimate
from lodekit.uncertainty.variance_tests import UNOBSERVED_MESSAGE

if TYPE_CHECKING:
    from lodekit.results.validation import ChannelValidation


def format_summary(
    title: Sequence[tuple[str, str]],
    parameters: Mapping[str, Estimate],
    others: Mapping[str, float | str],
    warnings: Sequence[str],
) -> str:
    """Return the result as a table in the style of statistics packages."""
    width = 78
    rule, line = "=" * width, "-" * width
    lines = ["LODE-GP Results".center(width).rstrip(), rule]
    half = (len(title) + 1) // 2
    for left, right in zip(title[:half], [*title[half:], ("", "")][:half], strict=True):
        first = f"{left[0] + ':':<18}{left[1]:>20}"
        second = f"{right[0] + ':' if right[0] else '':<18}{right[1]:>20}"
        lines.append(f"{first}  {second}".rstrip())
    lines.append(rule)
    if parameters:
        lines += [f"{'':<18}{'coef':>12}{'std err':>12}{'[0.025':>14}{'0.975]':>14}", line]
        for name, estimate in parameters.items():
            if estimate.note:
                value = "-" if np.isnan(estimate.value) else f"{estimate.value:.5g}"
                lines.append(f"{name:<18}{value:>12}   {estimate.note}")
            else:
                numbers = (estimate.value, estimate.std_error, *estimate.interval)
                value, error, low, high = (round_to_error(number, estimate.std_error) for number in numbers)
                lines.append(f"{name:<18}{value:>12}{error:>12}{low:>14}{high:>14}")
        lines.append(line)
    for name, each in others.items():
        value = each if isinstance(each, str) else f"{each:.3g}"
        lines.append(f"{name} {value.rjust(45 - len(name))}")
    lines.append(rule)
    lines += [f"Warning: {warning}" for warning in warnings]
    return "\n".join(lines)


CONVERGENCE_IN_WORDS = {
    "yes": "the search converged",
    "no": "the search did not converge",
    "poor fit": "the search converged, but the curves fit the data poorly",
}
#: Free runs whose 95 % band has a smaller coverage are not reliable, even if one-step predictions are.
MIN_COVERAGE = 0.9
#: A free run that explains a smaller fraction of the variance is not useful.
MIN_EXPLAINED = 0.5


class Summary(str):
    """A summary table, shown as text, and as HTML in notebooks.

    Parameters
    ----------
    text : str
    html : str
        The table for notebooks.
    """

    __slots__ = ("_html",)
    _html: str

    def __new__(cls, text: str, html: str = "") -> Summary:  # noqa: D102 - see the class
        found = super().__new__(cls, text)
        found._html = html
        return found

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self._html

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str | None:
        return self._html or None


def summary(fit: Fit) -> Summary:
    """Return the result as a table: parameters with standard errors and intervals, and all other estimates.

    Notebooks show it as a table; elsewhere, `print` shows it as text.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> print(gp.summary().splitlines()[0].strip())
    LODE-GP Results
    """
    n_records, measured = len(fit.record_names), fit.setup.measurements.observable_statistics
    # Constant data show neither dynamics nor correlations.
    constant, estimates = [item.observable for item in measured if item.is_constant], fit.estimates
    converged = fit.convergence
    if measured and len(constant) == len(measured):
        converged = converged.replace("yes", "-")
        estimates = {name: e if e.identified else replace(e, value=np.nan) for name, e in estimates.items()}
    records, minimum = (f" ({n_records} records)", ", minimum") if n_records > 1 else ("", "")
    title = [
        ("Channels", str(len(fit.system.plain_channels))),
        ("Observations", f"{fit.setup.engine.size}{records}"),
        ("Free functions", str(fit.setup.reduced_system.free_functions)),
        ("Log evidence", f"{fit.log_evidence:.3f}"),
        ("Converged", converged),
        ("Engine", fit.engine_choice.name),
    ]
    fixed, shown = "" if fit.layout.estimates_mode_std else " (fixed)", displayed_hyperparameters(fit).items()
    others = {f"{name}{fixed * name.startswith(MODE_STD_LABEL)}": value for name, value in shown}
    # Amplitudes estimated as zero are at a bound of the search, whose value is meaningless.
    for each in (each for each in fit.disturbances.values() if not each.deviation):
        others.pop(f"lengthscale of {each.name}", None)
        others[f"amplitude of {each.name} (std)"] = "0 (not needed)" if each.note != UNOBSERVED_MESSAGE else "unknown"
    # The amplitude of white noise does not have the unit of its channel.
    white = [each.name for each in fit.disturbances.values() if each.kind == WHITE_NOISE and each.deviation]
    known = fit.system, fit.labels.units, fit.measurements.names
    found = {name: white_noise_unit(known[0], name, *known[1:]) for name in white}
    units = {f"amplitude of {name} (std)": short for name, (short, words) in found.items() if short == words}
    others = {_with_unit(name, units.get(name)): value for name, value in others.items()}
    others |= {_with_unit(f"noise ({name})", fit.units.get(name)): value for name, value in fit.noise.items()}
    shares = fit.diagnosis.explained_variance
    others |= {f"variance explained ({name}){minimum}": format_percent(share) for name, share in shares.items()}
    others |= {
        check.subject: "-" if check.name in constant else check.verdict
        for check in fit.diagnosis.checks
        if check.looked
    }
    notes = (*fit.input_notes, *fit.remarks, *fit.notes)
    named = {_with_unit(name, fit.units.get(name)): each for name, each in estimates.items()}
    text = "\n".join([format_summary(title, named, others, fit.warnings), *(f"Note: {n}" for n in notes)])
    lines = [[name, each if isinstance(each, str) else f"{each:.5g}"] for name, each in others.items()]
    table = html_table(["other results", "value"], lines)
    parts = [html_list(fit.warnings, "warning"), _format_parameters_html(fit, estimates), table]
    parts += [html_list(notes, "soft"), glossary_html()]
    lead = "; ".join(f"{name.lower()} {value}" for name, value in title)
    return Summary(text, notebook_card("LODE-GP results", lead, parts))


def _with_unit(name: str, unit: str | None) -> str:
    return f"{name} [{unit}]" if unit else name


def displayed_hyperparameters(fit: Fit) -> dict[str, float | str]:
    """Return lengthscales and amplitudes by name as displayed; a diffuse initial state is estimated or given."""
    if fit.layout.diffuse_modes is None:
        # The evidence does not depend on the amplitude of an unobservable mode.
        curvature = np.diag(fit.observed_information)[fit.layout.slices.mode_deviations]
        hidden = [f"{MODE_STD_LABEL} {i} (std)" for i, value in enumerate(curvature, 1) if abs(value) < 1e-3]
        return dict(fit.described_hyperparameters) | dict.fromkeys(hidden, "not determined")
    # The large value that represents infinity is not informative.
    own: dict[str, float | str] = {
        name: value for name, value in fit.described_hyperparameters.items() if not name.startswith(MODE_STD_LABEL)
    }
    # Exact values may determine all initial states.
    return own | {"initial state": "estimated" if fit.layout.diffuse_modes.unknown_share else "given exactly"}


def _format_parameters_html(fit: Fit, estimates: Mapping[str, Estimate]) -> str:
    """Return the parameters as an HTML table; empty if there are none."""
    lines = []
    for name, found in estimates.items():
        unit, error = fit.units.get(name, ""), found.std_error
        value = round_to_error(found.value, error if found.has_interval else 0.0).replace("nan", "–")
        own = [round_to_error(error, error), " to ".join(round_to_error(edge, error) for edge in found.interval)]
        lines.append([name, value, *(own if found.has_interval else ["–", "–"]), unit, found.note])
    head = ["parameter", "estimate", "std error", "95 % interval", "unit", "note"]
    return html_table(head, lines, text_columns=(4, 5)) if lines else ""


def format_one_line(fit: Fit) -> str:
    """Return a fit in one line: number of measurements, parameters, and whether it failed."""
    records = f" in {len(fit.record_names)} records" if len(fit.record_names) > 1 else ""
    text = f"fitted to {fit.setup.engine.size} measurements{records}"
    shown = [
        f"{name} = {format_uncertain(each.value, each.std_error)}" if each.has_interval else f"{name} = {each}"
        for name, each in fit.estimates.items()
    ]
    more = [f"and {len(shown) - 6} more"] if len(shown) > 6 else []
    text += f": {', '.join(shown[:6] + more)}" if shown else ""
    return text if fit.converged else f"{text}; {CONVERGENCE_IN_WORDS[fit.convergence]}, see warnings_"


def format_fit_html(fit: Fit) -> str:
    """Return a fit as HTML for notebooks: equations, parameters and warnings."""
    shares = [
        f"{name}: {format_percent(share)}"
        for name, share in fit.diagnosis.explained_variance.items()
        if np.isfinite(share)
    ]
    explained = f"Variance explained: {', '.join(shares)}" if shares else ""
    noise = ", ".join(f"{name}: {value:.3g}" for name, value in fit.noise.items())
    details = "; ".join([*([explained] if shares else []), *([f"noise of {noise}"] if noise else [])])
    lead = f"fitted to {fit.setup.engine.size} measurements; log evidence {fit.log_evidence:.3f}"
    warnings, parameters = html_list(fit.warnings, "warning"), _format_parameters_html(fit, fit.estimates)
    parts = [*equations_to_mathml(fit.system), warnings, parameters, html_paragraph(details)]
    return notebook_card("LODEGP", lead, parts)


def summary_dict(fit: Fit) -> dict[str, Any]:
    """Return the result of a fit as plain values for JSON; infinite numbers are None."""
    records = {
        name: {
            "observations": int(part.setup.engine.size),
            "window": list(part.measurements.window),
            "log_evidence": float(part.log_evidence),
            "explained": dict(part.diagnosis.explained_variance),
        }
        for name, part in zip(fit.record_names, fit.record_fits, strict=True)
    }
    return {
        "parameters": {name: estimate.to_dict() for name, estimate in fit.estimates.items()},
        "inputs": fit.described_inputs,
        "disturbances": {name: each.to_dict() for name, each in fit.disturbances.items()},
        "noise": dict(fit.noise),
        "hyperparameters": dict(fit.described_hyperparameters),
        "log_evidence": float(fit.log_evidence),
        "observations": int(fit.setup.engine.size),
        **({"records": records} if len(records) > 1 else {}),
        "converged": bool(fit.converged),
        "poor_fit": fit.convergence == "poor fit",
        "engine": str(fit.engine_choice),
        "explained": dict(fit.diagnosis.explained_variance),
        **Findings.of(fit.diagnosis, fit.clock.unit).to_dict(),
        "warnings": list(fit.warnings),
        "remarks": fit.remarks,
    }


def bse(fit: Fit) -> dict[str, float]:
    """The standard errors of the parameters by name, as in statsmodels; zero for fixed ones.

    They equal those of `parameters_`: infinite if the data do not identify a parameter.
    """
    return {name: each.std_error for name, each in fit.estimates.items()}


def conf_int(fit: Fit, alpha: float = 0.05, *, as_frame: bool | str | None = None) -> Any:
    """Return confidence intervals of the parameters by name, as in statsmodels: `intervals` with share 1 - alpha.

    Parameters
    ----------
    alpha : float
        Significance level: 0.05 for 95 % intervals.
    as_frame : bool or str, optional
        Whether to return a DataFrame, as in `predict`.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> gp.conf_int()["a"] == gp.parameters_["a"].interval == gp.intervals(0.95)["a"]
    True
    """
    if not _is_fraction(alpha):
        raise LodekitError(f"expected alpha between zero and one, such as 0.05 for intervals of 95 %, got {alpha!r}")
    found = {name: each.interval for name, each in fit.estimates_at(1.0 - float(alpha)).items()}
    if not as_frame:
        return found
    lower, upper = zip(*found.values(), strict=True) if found else ((), ())
    return make_frame({"parameter": list(found), "lower": list(lower), "upper": list(upper)}, as_frame)


def cov_params(fit: Fit) -> Array:
    """Return the covariance of the parameters in the user's units, shape (p, p), in the order of `parameters_`.

    Its diagonal contains the squared standard errors of identified parameters. Rows and columns of fixed parameters are
    zero. If the data do not identify a parameter, its variance is large but finite here, so that identified
    combinations, such as a ratio of two parameters, keep a correct variance.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> bool(abs(gp.cov_params()[0, 0] ** 0.5 / gp.bse["a"] - 1) < 1e-9)
    True
    """
    found = fit.joint_fit.parameter_covariance
    # The regularisation of flat directions changes other variances in the fourth digit.
    ratios = [
        each.std_error / spread if each.has_interval and spread > 0 else 1.0
        for each, spread in zip(fit.estimates.values(), np.sqrt(np.diag(found)).tolist(), strict=True)
    ]
    return np.asarray(found * np.outer(ratios, ratios))


def intervals(fit: Fit, share: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return confidence intervals of the parameters by name, with a given confidence level.

    `parameters_` also has the 95 % intervals. If the data do not identify a parameter, the interval is its whole range.

    Parameters
    ----------
    share : float
        Confidence level between zero and one, such as 0.5 or 0.99.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> narrow, wide = gp.intervals(0.5)["a"], gp.intervals(0.99)["a"]
    >>> wide[0] < narrow[0] < gp.parameters_["a"].value < narrow[1] < wide[1]
    True
    """
    if not _is_fraction(share):
        raise LodekitError(f"expected a share between zero and one, such as 0.95, got {share!r}")
    return {name: each.interval for name, each in fit.estimates_at(float(share)).items()}


def _is_fraction(given: object) -> bool:
    return isinstance(given, Real) and 0.0 < float(given) < 1.0


def describe_channel_validation(item: ChannelValidation, unit: str = "") -> str:
    """Return how well an observable was predicted, in one sentence for each finding."""
    share, fit = item.coverage, item.fit_percent
    count = len(item.times)
    # A correct band contains so few independent values in one of a hundred records.
    is_low = share < MIN_COVERAGE and bdtr(round(share * count), count, 0.95) < 0.01
    # A coverage below the minimum is not rounded up to it.
    shown = format_below(share, MIN_COVERAGE)[0] if is_low else format_percent(share)
    band = f"{shown} of the measurements are inside the 95 % band"
    changes = not np.isnan(fit)
    explained = format_percent(item.explained_variance)
    errors = f"{'correlated ' * (not item.adequate)}errors of {format_quantity(item.rmse, unit)} (RMSE)"
    lead = f"the free run of {item.title} "
    lead += f"explains {explained} of the variance, with {errors}" if item.useful and changes else f"has {errors}"
    lead = lead if changes else f"the measurements of {item.title} do not change in this record"
    # The finding about a band that is too narrow states its coverage.
    lead += f", and {band}" * item.calibrated
    useful, useless = "the model is useful", "not useful: the free run"
    some = "" if item.fitted_share == 1 else f"{format_percent(item.fitted_share)} of "
    seen = f"however, the model was fitted to {some}these measurements; validate it on others" * (item.fitted_share > 0)
    verdicts = [
        (not changes, ""),
        (
            not (item.useful or item.is_informative),
            f"this record varies no more than the noise ({format_quantity(item.noise_std, unit)}), so it cannot show "
            "whether the model is useful",
        ),
        (fit < 0, f"{useless} is worse than the mean of the record"),
        (not item.useful, f"{useless} explains only {explained} of the variance"),
        (not item.calibrated, f"{useful}, but do not rely on its bands"),
        # With disturbances, one-step predictions are judged: errors of a free run may have the same sign for long.
        (is_low, "the model predicts the next row well, but the band of its free run is too narrow here"),
        (item.excess_width > 1.0, f"{useful}, but its bands are {item.excess_width:.1f} times as wide as needed"),
        (not item.adequate, "use the model only if errors of this size are acceptable"),
        (not item.conclusive, f"{useful}, but there are too few measurements to show whether errors are independent"),
        (not seen, "this record confirms the model"),
    ]
    verdict = next((words for is_true, words in verdicts if is_true), "")
    low = [(format_count(n, "row") if isinstance(n, int) else n, each) for n, each in item.ahead.items()]
    shares = [f"{format_percent(each.coverage)} {n} ahead" for n, each in low if each.coverage < 0.8]
    narrow = f"95 % bands of forecasts too narrow: they contain {join_list(shares)}" * bool(shares and count >= 20)
    return " ".join(as_sentence(each) for each in (lead, verdict, seen, *item.misses, narrow) if each)


def describe_initial_state(fit: Fit, start: str | int, count: int | None, *, continues: bool = False) -> str:
    """Return the source of the initial state, in words; and if all rows could not be used as requested, the reason."""
    rows = "all rows" if count is None else f"the first {count} rows, which are not counted"
    text = "the one at the end of the fitted record" if count == 0 else f"estimated from {rows}"
    if start == "all" and count is not None:
        unknown = join_list(list(fit.prior.disturbances)) or "free functions"
        text += f"; estimating it from all rows would also estimate {unknown}, and the run would not be free"
    advice = (
        '; this record continues the fitted one, so the run can also start from the state at its end: try start="end"'
    )
    return f"the initial state is {text}{advice * (count is None and continues)}"


def describe_solution_sense(fit: Fit, own: Sequence[Equation]) -> str:
    """Return in which sense the equations hold, given those that hold pointwise; empty if all of them do."""
    names = fit.setup.channels_without_values
    if not names:
        return ""
    white = [name for name in names if fit.prior.disturbances.get(name) == WHITE_NOISE]
    others, driving = [name for name in names if name not in white], list(fit.prior.disturbances)
    held = [equation.text for equation in fit.system.written if equation.mentions(names)]
    verb = "is white noise and has" if len(white) == 1 else "are white noise and have"
    what = [f"{join_list(white)} {verb} no point values"] * bool(white)
    what += [f"{join_list(others)} {'has' if len(others) == 1 else 'have'} no point values"] * bool(others)
    says = (
        f"given {join_list(driving)}, all equations hold exactly. {'; '.join(what)}; "
        f"{'; '.join(text.strip() for text in held)} {'holds' if len(held) == 1 else 'hold'} in integrated form, and "
    )
    return says + (
        f"only combinations of equations without {join_list(list(names), 'or')} were checked numerically: "
        f"{'; '.join(equation.text.strip() for equation in own)}"
        if own
        else "no numerical check is possible"
    )


def describe_curve_residuals(residuals: CurveResiduals) -> str:
    """Return the size of equation residuals, and how much of it numerical differentiation explains."""
    if not residuals.length:
        return f"at most {residuals.residual:.1e}; drawn with their derivatives, as they are rough"
    return f"at most {residuals.residual:.1e}; numerical differentiation error: {residuals.uncertainty:.1e}"
