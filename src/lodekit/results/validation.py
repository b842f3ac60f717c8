"""Validation on a record that the fit did not use: free run (simulation), k-step prediction, NRMSE fit and coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any, NamedTuple, Self

import numpy as np

from lodekit import plotting
from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.data.sources import load_data
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.messages import Findings, input_gap_warnings
from lodekit.diagnostics.validation_tests import ValidationErrors, concatenate_errors, find_validation_failures
from lodekit.errors import AlgebraError, DataError, EquationError, LodekitError
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.innovations import (
    Horizon,
    InnovationSequence,
    create_filter,
    split_into_segments,
    uses_kalman_filter,
)
from lodekit.prior.observables import table_checks
from lodekit.prior.prior import Hyperparameters
from lodekit.results.figures import make_record_panels
from lodekit.results.fit import Fit
from lodekit.results.forecast import (
    BURN_IN_ROWS,
    ForecastBand,
    calibrate_bands,
    error_shifts,
    forecast_with_bands,
    parse_horizon,
    widen_free_run,
)
from lodekit.results.simulation import compile_from_record
from lodekit.results.summary import MIN_COVERAGE, MIN_EXPLAINED, describe_channel_validation, describe_initial_state
from lodekit.support.arguments import Array
from lodekit.support.progress import track_progress
from lodekit.support.text import as_sentence, format_count, format_percent, join_list, merge_records, to_json_values
from lodekit.support.units import format_duration
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95
from lodekit.uncertainty.forecast_errors import median_step

#: Number of times, beside those of the measurements, at which the free run is drawn.
_N_CURVE_TIMES = 400
#: A record has at least so many measurements more than initial values.
_MIN_EXTRA_VALUES = 5
#: The horizon of innovations.
_NEXT_ROW = Horizon(1)
_VERDICTS = ("holds", "useful", "adequate", "calibrated")


class Ahead(NamedTuple):
    """Accuracy of predictions some rows, or some time, ahead.

    Parameters
    ----------
    fit_percent, rmse : float
        As for the free run: errors are compared with the spread of the same measurements.
    coverage : float
        The share of measurements in the 95 % band.
    rows : int
        The number of predicted measurements.
    """

    fit_percent: float
    rmse: float
    coverage: float
    rows: int

    @classmethod
    def of(cls, errors: Array, deviations: Array, values: Array) -> Self:
        """Return the accuracy from errors and measurements.

        Parameters
        ----------
        errors, deviations : arrays, shape (n,)
            Measurements minus predictions, and the standard deviations of these errors.
        values : array, shape (m,)
            The measurements with whose spread errors are compared.
        """
        spread, rmse = float(np.std(values)), float(np.sqrt(np.mean(errors**2)))
        fit_percent = 100.0 * (1.0 - rmse / spread) if spread > 0 else float("nan")
        return cls(fit_percent, rmse, float(np.mean(np.abs(errors) <= NORMAL_QUANTILE_95 * deviations)), len(errors))

    def to_dict(self) -> dict[str, float]:
        """Return plain values."""
        return self._asdict()


@dataclass(frozen=True, eq=False)
class ChannelValidation:
    """The validation of one observable.

    Parameters
    ----------
    name : str
        The observable.
    times, values, mean, std : arrays, shape (n,)
        Measurements, and the free run with the standard deviation of a measurement.
    curve : (times, mean, std)
        The free run on a dense grid, for figures; by default at the measurements.
    noise_std : float
        The root mean square noise of a measurement.
    ahead : dict of int or str to Ahead
        By rows or time ahead: fit percentage, root mean square error, and coverage.
    misses : tuple of str
        Evidence against the model, in words: a band that contains too few measurements, or errors that are correlated
        with each other or with an input, by more than chance.
    calibrated : bool
        Whether the 95 % band contains enough measurements, up to chance: that of the free run or, with disturbances
        or free functions, of predictions one row ahead.
    record : str
        The name of the record, if there are several.
    fitted_share : float
        The share of these measurements that was used for the fit.
    excess_width : float
        How many times as wide as the errors require the judged band is, if at least twice and more than chance
        explains; otherwise one.
    conclusive : bool
        Whether there are enough errors for the tests to detect correlated ones.
    noise_is_misfit : bool
        Whether residuals of the fit were correlated, so that its noise level includes the misfit of the model.
    """

    name: str
    times: Array
    values: Array
    mean: Array
    std: Array
    curve: tuple[Array, ...] = ()
    noise_std: float = 0.0
    ahead: Mapping[int | str, Ahead] = field(default_factory=dict)
    misses: tuple[str, ...] = ()
    calibrated: bool = True
    record: str = ""
    fitted_share: float = 0.0
    excess_width: float = 1.0
    conclusive: bool = True
    noise_is_misfit: bool = False

    def __repr__(self) -> str:
        numbers = f"fit_percent={self.fit_percent:.1f}, rmse={self.rmse:.4g}, coverage={self.coverage:.3f}"
        verdicts = (f"{key}={getattr(self, key)}" for key in _VERDICTS)
        return f"ChannelValidation({self.title!r}, rows={len(self.times)}, {numbers}, {', '.join(verdicts)})"

    @property
    def title(self) -> str:
        """The observable, and the record if there are several."""
        return f"{self.name} of record {self.record}" if self.record else self.name

    @property
    def holds(self) -> bool:
        """Whether the model can be used for predictions like this one: it is useful and calibrated.

        It need not be adequate: in long records, tests detect errors that are too small to matter.
        """
        return self.useful and self.calibrated

    @property
    def useful(self) -> bool:
        """Whether the free run explains at least half of the variance about the mean of the record."""
        return not self.explained_variance < MIN_EXPLAINED

    @property
    def is_informative(self) -> bool:
        """Whether the record varies, or its errors are, by so much more than noise that a perfect model is useful."""
        spread = max(float(self.values.var()), self.rmse**2)
        return self.noise_is_misfit or spread * (1.0 - MIN_EXPLAINED) >= self.noise_std**2

    @property
    def failure(self) -> str:
        """Why the model does not hold, in a few words; empty if it holds."""
        cannot_show = "" if self.is_informative else ", because it varies no more than the noise"
        reasons = ["band too narrow"] * (not self.calibrated) + [f"not shown to be useful{cannot_show}"] * (
            not self.useful
        )
        return f"{self.title} ({' and '.join(reasons)})" if reasons else ""

    @property
    def adequate(self) -> bool:
        """Whether the errors pass all residual tests: this record shows nothing that the equations miss."""
        return len(self.misses) == (not self.calibrated)

    @property
    def explained_variance(self) -> float:
        """``1 - |y - yhat|^2 / |y - mean(y)|^2``: the share of the variance about the mean that is explained."""
        return 1.0 - (1.0 - self.fit_percent / 100.0) ** 2

    @property
    def fit_percent(self) -> float:
        """``100 (1 - |y - yhat| / |y - mean(y)|)``, the NRMSE fit: 100 is perfect, zero is as good as the mean."""
        return self._scores.fit_percent

    @property
    def rmse(self) -> float:
        """The root mean square error."""
        return self._scores.rmse

    @property
    def coverage(self) -> float:
        """The share of measurements in the 95 % band."""
        return self._scores.coverage

    @cached_property
    def _scores(self) -> Ahead:
        return Ahead.of(self.values - self.mean, self.std, self.values)

    @property
    def log_density(self) -> float:
        """The mean log density of a measurement."""
        error = (self.values - self.mean) / self.std
        return float(np.mean(-0.5 * error**2 - np.log(self.std) - 0.5 * np.log(2.0 * np.pi)))


@dataclass(frozen=True, eq=False)
class Validation:
    """The validation of a model on records that were not used for the fit.

    Parameters
    ----------
    channels : tuple of ChannelValidation
        The results of each predicted observable, of one record after the other.
    start : str
        Which rows determine the initial state, in words.
    given : tuple of str
        Channels that are known over the whole record.
    units : dict of str to str
        Units for figures and tables.
    inputs : dict of str to InputSignal
        Known inputs, for figures; with their records if there are several.
    doubts : tuple of str
        Problems that the fit reported about its own residuals.
    warnings : tuple of str
        Gaps of known inputs, in which they may have changed.
    origin : str
        The date of time zero, if times are counted from a date; otherwise empty.
    """

    channels: tuple[ChannelValidation, ...]
    start: str
    given: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    origin: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the model can be used for predictions like these: all observables are useful and calibrated."""
        return all(item.holds for item in self.channels)

    @property
    def useful(self) -> bool:
        """Whether the free run is clearly better than a constant, for all observables."""
        return all(item.useful for item in self.channels)

    @property
    def adequate(self) -> bool:
        """Whether errors of all observables pass the residual tests."""
        return all(item.adequate for item in self.channels)

    @property
    def calibrated(self) -> bool:
        """Whether the bands of all observables contain as many measurements as they should."""
        return all(item.calibrated for item in self.channels)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Gaps of inputs; a verdict on each observable, and what the model misses; then the doubts of the fit."""
        doubts = (f"warning of the fit: {text}" for text in self.doubts)
        found = (describe_channel_validation(item, self.units.get(item.name, "")) for item in self.channels)
        # Gaps of inputs may explain errors.
        return (*self.warnings, *merge_records(found, [item.record for item in self.channels if item.record]), *doubts)

    def __getitem__(self, title: str) -> ChannelValidation:
        for item in self.channels:
            if title in (item.title, item.name):
                return item
        raise KeyError(title)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; undefined numbers, such as the fit percentage of a constant, are None."""
        channels = {
            item.title: {
                **item._scores.to_dict(),
                "log_density": item.log_density,
                "misses": item.misses,
                "fitted_share": item.fitted_share,
                "explained_variance": item.explained_variance,
                **{key: getattr(item, key) for key in (*_VERDICTS, "conclusive", "excess_width")},
                "ahead": {str(step): each.to_dict() for step, each in item.ahead.items()},
            }
            for item in self.channels
        }
        found = {"verdict": self.sentences, **{key: getattr(self, key) for key in _VERDICTS}}
        found |= {"start": self.start, "given": self.given}
        return dict(to_json_values(found | {"channels": channels}))

    def __repr__(self) -> str:
        def shown(item: Any) -> str:
            return "–" if np.isnan(item.fit_percent) else f"{item.fit_percent:.1f}"

        known = f" from {join_list(self.given)}" if self.given else ""
        lines = [*map(as_sentence, self.sentences), ""]
        lines += [f"Free run{known}; {self.start}."]
        units = {item.title: self.units.get(item.name, "") for item in self.channels}
        names = {title: plotting.name_with_unit(title, unit) for title, unit in units.items()}
        wide = max(14, *(len(name) + 2 for name in names.values()))
        lines.append(f"{'':<{wide}}{'rows':>7}{'fit %':>9}{'RMSE':>12}{'in 95 % band':>15}{'log density':>14}")
        for item in self.channels:
            numbers = f"{item.rmse:>12.4g}{format_percent(item.coverage):>15}{item.log_density:>14.3f}"
            lines.append(f"{names[item.title]:<{wide}}{len(item.times):>7}{shown(item):>9}{numbers}")
        steps = list(dict.fromkeys(step for item in self.channels for step in item.ahead))
        if steps:
            lines.append("Fit % of forecasts from all earlier measurements, by horizon (in 95 % band; rows):")
            lines.append(f"{'':<{wide}}" + "".join(f"{step:>20}" for step in steps))
        for item in self.channels if steps else ():
            both = (item.ahead.get(step) for step in steps)
            cells = (f"{shown(own)} ({format_percent(own.coverage)}; {own.rows})" if own else "" for own in both)
            lines.append(f"{names[item.title]:<{wide}}" + "".join(f"{cell:>20}" for cell in cells))
        return "\n".join(lines)

    def plot(self, *, axes: Any = None) -> Any:
        """Plot the free run of each record with its 95 % band and the measurements, above the known inputs.

        Parameters
        ----------
        axes : matplotlib axes, one for each panel, optional
            Axes to draw on; a new figure by default.
        """
        records = list(dict.fromkeys(item.record for item in self.channels))
        signals = {key.partition(" of record ")[::2]: signal for key, signal in self.inputs.items()}
        names = list(dict.fromkeys([*(item.name for item in self.channels), *(name for name, _ in signals)]))
        figure, grid, new = make_record_panels(axes, names, records)
        clock = TimeReference.from_labels(self.origin, self.units.get("t"))
        for record, column in zip(records, grid, strict=True):
            free, own = dict(zip(names, column, strict=True)), [item for item in self.channels if item.record == record]
            first, last = (end(float(item.times[k]) for item in own) for k, end in ((0, min), (-1, max)))
            column[0].set_title(f"record {record}" if record else "", fontsize="medium")
            for item in own:
                data = clock.axis_times(item.times), item.values
                times, *band = item.curve or (item.times, item.mean, item.std)
                unit, note = self.units.get(item.name, ""), f"fit {item.fit_percent:.1f} %"
                panel, times = free.pop(item.name), clock.axis_times(times)
                plotting.draw_channel(panel, times, *band, data=data, label=item.name, unit=unit, note=note)
            for name, signal in ((name, each) for (name, where), each in signals.items() if where == record):
                inside = signal.times[(signal.times > first) & (signal.times < last)]
                times, is_held = np.concatenate([[first], inside, [last]]), signal.kind == "hold"
                label = f"{plotting.name_with_unit(name, self.units.get(name, ''))}\n(known)"
                panel = free.pop(name)
                plotting.draw_input(panel, clock.axis_times(times), signal.at(times), is_held=is_held, label=label)
            for panel in free.values():  # not measured in this record
                panel.set_axis_off()
        panels = [panel for column in grid for panel in column]
        plotting.label_time(panels, self.units.get("t", ""), clock.axis_zone)
        plotting.add_legend(figure, panels, outside=new)
        if new:
            figure.align_ylabels(panels)
        return figure


_FilterFunction = Callable[[Hyperparameters], InnovationSequence | None]


def validate(
    fit: Fit,
    t: Any,
    Y: Any = None,
    noise_std: Any = None,
    *,
    given: str | Iterable[str] | None = None,
    start: str | int = "all",
    ahead: Sequence[int | str] = (1, 5, 10),
    time: str | None = None,
    columns: Mapping[str, Any] | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
    split_gaps: bool | None = None,
) -> Validation:
    """Validate the model on records that were not used for the fit: fit percentages, coverage, log density.

    No parameters are estimated. The free run uses the inputs of the whole record, and other measurements only for the
    initial state. Its band includes the uncertainty of parameters, initial state and remaining free functions, and
    noise.

    Parameters
    ----------
    t, Y, noise_std, time, columns, dt, split_gaps
        The record, or several, as in `fit`; by default with the columns of the fitted file, and split at gaps if the
        fitted record was.
    window : (first, last)
        If the record is a file: the part of it that is used, by times or dates; None for its first or last time.
    given : str or sequence of str, optional
        If the fit has no known inputs: the channels to condition on, known over the whole record by their measurements.
        By default those that leave no free function, if this choice is unique.
    start : {"all", "end"} or int
        What determines the initial state. ``"all"``: all rows, because a few numbers cannot hide errors in a long
        record. A number: the first rows, which are then not counted. ``"end"``: the state at the end of the fitted
        record, as in `simulate`, if this record is later on the same time axis. With free functions or disturbances,
        all rows would determine these as well, so ``"all"`` starts at the end of the fitted record if this one
        continues it, otherwise from the first ten rows; `start` of the result states this.
    ahead : sequence of int or str
        Numbers of rows, or times such as ``"24 h"``, for predictions ahead from all earlier measurements; in six parts
        of a long record, or in all of it with the Markov engine. Each uses the measurements before it, whatever `start`
        is; the first ones, which would have at most ten earlier rows, are left out. Bands adapt to the size of earlier
        errors.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.arange(60.0)
    >>> def record(u):
    ...     y = np.zeros(60)
    ...     for k in range(59):
    ...         y[k + 1] = y[k] + (1 - np.exp(-1 / 5)) * (2 * u[k] - y[k])
    ...     return {"y": y + 0.01 * np.sin(50 * t), "u": u}
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, record(t // 20 % 2))
    >>> found = gp.validate(t, record(t // 15 % 2))
    >>> found["y"].fit_percent > 97
    True
    """
    options = {"time": time, "columns": columns, "dt": dt, "window": window, "split_gaps": split_gaps}
    records = _read_records(fit, t, Y, noise_std, **options)
    horizons = ahead if isinstance(ahead, Iterable) and not isinstance(ahead, str) else [ahead]
    parts = []
    with track_progress("validating", len(records)) as advance:
        for name, record in records.items():
            own = name if len(records) > 1 else ""
            parts.append(_validate_record(fit, record, own, given, start, horizons, len(records)))
            advance()
    channels = tuple(item for part in parts for item in part.channels)
    warnings = tuple(dict.fromkeys(text for part in parts for text in part.warnings))
    inputs = {key: signal for part in parts for key, signal in part.inputs.items()}
    return replace(parts[0], channels=channels, inputs=inputs, warnings=warnings)


def _validate_record(
    fit: Fit,
    record: Measurements,
    name: str,
    given: str | Iterable[str] | None,
    start: str | int,
    horizons: Iterable[int | str],
    n_records: int,
) -> Validation:
    """Return the validation on one record of several."""
    known = _parse_given(fit, record, given)
    count, previous = _parse_start(fit, record, bool(known), start)
    n_values, n_modes = sum(len(item.times) for item in record.series), sum(group.size for group in fit.prior.groups)
    if n_values < n_modes + _MIN_EXTRA_VALUES:
        needed = f"{n_modes + _MIN_EXTRA_VALUES} ({format_count(n_modes, 'initial value')} estimated from them)"
        raise DataError(f"too few measurements to validate the model: expected at least {needed}, got {n_values}")
    channels, shown = _free_run((count == 0 and previous) or fit, record, known, count)
    validated = {item.name: item.values for item in channels}
    scores, innovation_errors = _predict_ahead(fit, record, known, horizons, validated)
    errors = shown
    if count is not None:
        # Errors of a free run are correlated if something unknown drives the system; innovations are not.
        errors = innovation_errors if fit.prior.has_process else _free_run(fit, record, known, None)[1]
    counts = {item.observable: item.count for item in fit.measurements.observable_statistics}
    errors, shown = ([replace(each, n_fitted_rows=counts.get(each.name, 0)) for each in run] for run in (errors, shown))
    delayed, unit = {name.channel for name in fit.system.delayed_channels}, fit.labels.units.get("t", "")
    white = fit.record_fits[0].fitted_record.white_disturbances
    shares = {item.name: _fitted_share(fit, item) for item in channels}
    fine = [item.name for item in channels if item.useful and item.coverage >= MIN_COVERAGE]
    foreign = [name for name, share in shares.items() if not share and name not in fine]
    misses = find_validation_failures(errors, record.inputs, delayed, unit, white, n_records, foreign)
    findings = Findings.of(fit.joint_fit.diagnosis, unit)
    misfits = {check.name for check in findings.checks if check.is_autocorrelated}
    verdicts = {each.name: each.verdicts(len(errors) * n_records) for each in errors}
    # The width of the band is judged by the errors of the run that is shown.
    widths = {each.name: each.excess_width for each in shown}
    rated = tuple(
        replace(
            item,
            ahead=scores.get(item.name, {}),
            misses=misses.get(item.name, ()),
            record=name,
            fitted_share=shares[item.name],
            noise_is_misfit=item.name in misfits,
            **{**verdicts.get(item.name, {"conclusive": False}), "excess_width": widths.get(item.name, 1.0)},
        )
        for item in channels
    )
    judged = zip(findings.checks, findings.sentences, strict=True)
    doubts = merge_records((text for check, text in judged if check.is_suspicious), fit.joint_fit.record_names)
    words = describe_initial_state(fit, start, count, continues=previous is not None)
    inputs = {f"{key} of record {name}" if name else key: signal for key, signal in record.inputs.items()}
    gaps = tuple(input_gap_warnings(record, fit.clock, is_doubtful=any(misses.values())))
    if count == 0 and previous and record.inputs and (delay := _gap_after(previous, record)):
        lasting = format_duration(delay, fit.clock.unit, 3)
        gaps += (f"inputs are unknown between the fitted record and this one ({lasting}), and keep their last values",)
    return Validation(
        rated, words, (*record.inputs, *known), fit.labels.units, inputs, tuple(doubts), fit.labels.origin, gaps
    )


def _fitted_share(fit: Fit, item: ChannelValidation) -> float:
    """Return the share of the values of an observable that are among those of the fit, at the same times."""
    parts = [part for part in fit.joint_fit.measurements.records.values() if not part.has_only_statistics]
    own = [each for part in parts for each in part.series if each.observable == item.name]
    known = {pair for each in own for pair in zip(each.times.tolist(), each.values.tolist(), strict=True)}
    pairs = [*zip(item.times.tolist(), item.values.tolist(), strict=True)]
    return sum(pair in known for pair in pairs) / max(len(pairs), 1)


def _read_records(fit: Fit, t: Any, Y: Any, noise_std: Any, **options: Any) -> dict[str, Measurements]:
    """Return records as measurements with known noise, and with the inputs of the fit, by name."""
    if options["split_gaps"] is None:
        options["split_gaps"] = bool(fit.labels.reading.get("split_gaps"))
    options |= table_checks(fit.system)
    options |= {"since": fit.clock.origin, **fit.labels.read_options}
    options["inputs"] = tuple(fit.measurements.inputs)
    source = load_data(t, Y, fit.system.plain_channels, noise_std=noise_std, **options)
    fit.clock.check_origin(source.origin)
    kinds, found = {name: signal.kind for name, signal in fit.measurements.inputs.items()}, {}
    for name, own in source.measurements.records.items():
        if own.sufficient_statistics is not None:
            raise DataError("the record has too many rows to be kept; expected fewer, such as a piece of it")
        record = own.with_known_inputs(kinds) if kinds else own
        series = []
        for item in record.series:
            std = item.noise_std_for_level(fit.typical_noise(item.observable))
            if not (std > 0).all():
                raise DataError(f"{item.observable} has no noise, and no density without it; give noise_std=")
            series.append(replace(item, std=std))
        found[name] = replace(record, series=series)
    return found


def _parse_given(fit: Fit, record: Measurements, given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the channels that are conditioned on."""
    names = [item.observable for item in record.series]
    known: tuple[Any, ...] = (given,)
    if given is None or (isinstance(given, Iterable) and not isinstance(given, str)):
        known = () if given is None else tuple(given)
    is_driven = bool(fit.measurements.inputs) or not fit.setup.reduced_system.free_functions
    if fit.prior.disturbances and (given is not None or not is_driven):
        # A filter processes measurements in the order of time, and the dense engine does not support disturbances.
        raise LodekitError(
            "a fit with disturbances has no known channels except its inputs; expected a fit with "
            f"inputs=, such as inputs={{{(*names, *known)[-1]!r}: 'hold'}}, and no given="
        )
    if given is not None:
        for key in known:
            if key not in names:
                raise LodekitError(f"expected given= among the channels of the record, {', '.join(names)}, got {key!r}")
        return known
    if is_driven:
        return ()
    channels = [name for name in names if name in fit.system.channels]
    sufficient = [each for each in combinations(channels, fit.system.free_functions) if _determines_all(fit, each)]
    if not sufficient:
        raise LodekitError(f"expected given=, the channels that are known; the record contains {', '.join(names)}")
    if len(sufficient) > 1:
        options = " or ".join("(" + ", ".join(each) + ")" for each in sufficient)
        raise LodekitError(f"expected given=, the channels that are known, such as {options}")
    return sufficient[0]


def _determines_all(fit: Fit, names: Sequence[str]) -> bool:
    if len(names) >= len(fit.system.channels):
        return False
    try:
        return not fit.system.given(names).free_functions
    except (AlgebraError, EquationError):
        return False


def _parse_start(fit: Fit, record: Measurements, given: bool, start: str | int) -> tuple[int | None, Fit | None]:
    """Return the number of measurements of each observable that determine the initial state, and the fit to continue.

    None for all measurements; zero for the state at the end of the last fitted record that ends before this one. That
    fit is returned if the run starts there, or if this record continues it.
    """
    earlier = [part for part in fit.record_fits if part.measurements.window[1] <= record.window[0] and not given]
    previous = max(earlier, key=lambda part: part.measurements.window[1], default=None)
    if isinstance(start, str) and start == "end":
        if previous is None:
            raise LodekitError(
                "start='end' is the state at the end of a fitted record; expected known inputs and a record that "
                "begins after a fitted one, on the same time axis; use start='all' or a number of rows"
            )
        return 0, previous
    if isinstance(start, str) and start == "all":
        previous = None if previous and _gap_after(previous, record) else previous
        return (None if not fit.prior.has_process else 0 if previous else BURN_IN_ROWS), previous
    if isinstance(start, bool) or not isinstance(start, int) or start < 1:
        raise LodekitError(f"expected start='all', 'end' or a number of rows, got {start!r}")
    return start, None


def _gap_after(previous: Fit, record: Measurements) -> float:
    """Return the time between a fitted record and another one, in which inputs are unknown; zero for a few rows."""
    delay = record.window[0] - previous.measurements.window[1]
    return delay if delay > 3.0 * median_step(record.series[0].times) else 0.0


def _free_run(
    fit: Fit, record: Measurements, given: Sequence[str], count: int | None
) -> tuple[list[ChannelValidation], list[ValidationErrors]]:
    """Return predictions of the free run, and their errors with derivatives in all estimates.

    The initial state is estimated from all measurements, from the first `count` of each observable, or for zero from
    the record of the fit.
    """
    targets = _targets(record, given)
    if not targets:
        raise DataError(f"expected measurements of an output, got {join_list(given)} alone")
    if count is None:
        return _predict_targets(fit, record, record, targets)
    used = [item if item.observable in given else item.select(slice(0, count)) for item in record.series]
    remaining = [item.select(slice(count, None)) for item in targets]
    return _predict_targets(fit, record, replace(record, series=used) if count else None, remaining)


def _targets(record: Measurements, given: Sequence[str]) -> list[TimeSeries]:
    """Return the measurements that are predicted."""
    return [item for item in record.series if item.observable not in given]


def _setup_at(fit: Fit, record: Measurements, used: Measurements) -> tuple[FitSetup, Array]:
    """Return an engine on measurements of a record, and prior standard deviations of modes.

    These are so large that the record alone determines its initial state: unless they are diffuse, those of the fit
    describe the initial state of the fitted record, which may have been at rest.
    """
    units = replace(fit.prior.units, start=record.window[0])
    scales = dict(zip(fit.measurements.names, fit.prior.units.scales.tolist(), strict=True))
    setup = build_setup(fit.system, replace(fit.settings, engine="auto"), used, time_units=units, scales=scales)
    deviations = fit.hyperparameters.mode_amplitudes.copy()
    deviations *= fit.layout.diffuse_modes is None
    target, power = setup.engine.mean_squares(setup.prior.observables.evaluate(fit.hyperparameters.theta))
    size = 10.0 * float(np.sqrt(target.max(initial=0.0)))
    edges = np.cumsum([group.size for group in setup.prior.groups])[:-1]
    for number, part in enumerate(np.split(power, edges)):
        usable = part[part > 1e-12 * power.max(initial=0.0)]
        if len(usable):
            deviations[number] = max(deviations[number], size / float(np.sqrt(usable.min())))
    return setup, deviations


def _predict_targets(
    fit: Fit, record: Measurements, used: Measurements | None, targets: Sequence[TimeSeries]
) -> tuple[list[ChannelValidation], list[ValidationErrors]]:
    """Return predictions from some measurements, or from the end of the fitted record, for others, and their errors."""
    uncertainty = fit.parameter_uncertainty
    if used is None:
        posterior, begin = fit.posterior, fit.measurements.window[1]
        compile_one = partial(compile_from_record, fit, new=record.inputs, start="end")
    else:
        setup, deviations = _setup_at(fit, record, used)

        def posterior_at(hyper: Hyperparameters) -> Any:
            return setup.engine.posterior(replace(hyper, noise_std=np.zeros(0), mode_amplitudes=deviations))

        posterior, begin = posterior_at(fit.hyperparameters), used.window[1]
        uncertainty = replace(uncertainty, posterior_at=posterior_at)
        compile_one = partial(setup.observable_compiler.compile_unscaled, units=setup.prior.units)
    channels, errors = [], []
    for item in targets:
        if not len(item.times):
            raise DataError(
                f"all rows of {item.observable} determine the initial state, and none is left to validate; use fewer "
                "rows for the initial state, or a longer record"
            )
        observables = compile_one([item.observable])
        times = np.union1d(item.times, np.linspace(item.times[0], item.times[-1], _N_CURVE_TIMES))
        rows = np.searchsorted(times, item.times)
        with np.errstate(all="ignore"):
            mean = posterior.mean(observables, times)[:, 0]
            variance = posterior.variance(observables, times)[:, 0] / fit.residual_dof_fraction
            slopes = fit.inflate_shifts(uncertainty.mean_jacobian(observables, times))[:, :, 0]
        plain = variance + np.sum(slopes**2, axis=0)
        # If all rows determine the initial state, the largest model error is used.
        elapsed = np.full(len(times), np.inf) if used is record else times - begin
        widened = widen_free_run(fit, [item.observable], elapsed, plain[:, None])[:, 0]
        curve = times, mean, np.sqrt(widened + np.interp(times, item.times, item.std) ** 2)
        std, noise = np.sqrt(widened[rows] + item.std**2), float(np.sqrt(np.mean(item.std**2)))
        own = item.observable, item.times, item.values
        channels.append(ChannelValidation(*own, mean[rows], std, curve, noise))
        wider, variance = std / np.sqrt(plain[rows] + item.std**2), variance[rows] + item.std**2
        left = item.values - mean[rows]
        errors.append(ValidationErrors(*own[:2], left, wider * np.sqrt(variance), wider * slopes[:, rows]))
    return channels, errors


def _filtered_segments(
    fit: Fit, record: Measurements, given: Sequence[str]
) -> Iterator[tuple[Sequence[TimeSeries], _FilterFunction]]:
    """Yield segments of the record, or all of it as one, each with its filter as a function of the hyperparameters.

    Given channels are filtered before all others.
    """
    (setup, deviations), series, factory = _setup_at(fit, record, record), record.series, fit.engine_choice.factory
    change = {"noise_std": np.zeros(0), "mode_amplitudes": deviations}
    first = frozenset(k for k, item in enumerate(series) if item.observable in given)
    is_whole = uses_kalman_filter(factory, setup.prior) and not first
    for segment in [series] if is_whole else split_into_segments(series):
        own_filter = create_filter(factory, setup.prior, segment, first)

        def filter_at(hyper: Hyperparameters, own_filter: _FilterFunction = own_filter) -> InnovationSequence | None:
            return own_filter(replace(hyper, **change))

        yield segment, filter_at


def _predict_ahead(
    fit: Fit, record: Measurements, given: Sequence[str], horizons: Iterable[int | str], validated: Mapping[str, Array]
) -> tuple[dict[str, dict[int | str, Ahead]], list[ValidationErrors]]:
    """Return the accuracy of predictions ahead by observable, and errors one measurement ahead.

    validated: The measurements that the free run predicts, with whose spread errors are compared.
    """
    leads = {step: parse_horizon(step, fit.clock.unit) for step in horizons}
    if not leads and not fit.prior.has_process:
        return {}, []
    order, targets = [item.observable for item in record.series], _targets(record, given)
    every = list(dict.fromkeys([_NEXT_ROW, *leads.values()]))
    names = [item.observable for item in targets]
    # Uncalibrated bands: there is no calibration for given channels.
    plain = [ForecastBand(each) for each in every]
    calibrated = {} if given else calibrate_bands(fit, names, every)
    bands = {name: dict(zip(every, calibrated.get(name, plain), strict=True)) for name in names}
    requested = [(order.index(name), bands[name][lead]) for name in names for lead in leads.values()]
    parts: dict[tuple[str, int | str], list[Array]] = {}
    errors: dict[str, list[ValidationErrors]] = {item.observable: [] for item in targets}
    for segment, filter_at in _filtered_segments(fit, record, given):
        innovations = filter_at(fit.hyperparameters)
        if innovations is None:
            return {}, []
        n_given = int(np.isin(innovations.observables, [order.index(name) for name in given]).sum())
        laplace, dof_fraction = fit.parameter_uncertainty, fit.residual_dof_fraction
        ahead = [(number, band.horizon) for number, band in requested]
        shifts, slopes = error_shifts(laplace, innovations, filter_at, ahead, n_given)
        forecasts = forecast_with_bands(innovations, requested, slopes, dof_fraction, n_given)
        for (item, step), (number, band), forecast in zip(product(targets, leads), requested, forecasts, strict=True):
            times = segment[number].times
            # Predictions begin when the initial state is determined.
            is_known = band.horizon.count_known(times, times) > BURN_IN_ROWS
            parts.setdefault((item.observable, step), []).append(np.stack(forecast)[:, is_known])
        for name, found in errors.items():
            rows = np.flatnonzero(innovations.observables == order.index(name))
            std, own = innovations.std[rows] / np.sqrt(dof_fraction), shifts[:, rows]
            known = std**2, np.sum(own**2, axis=0)
            adapted = bands[name][_NEXT_ROW].forecast_std(innovations, order.index(name), *known) / np.sqrt(sum(known))
            left = (innovations.standardized * innovations.std)[rows]
            parts_of_errors = innovations.times[rows], left, std, own.T, adapted
            times, left, std, own, adapted = (each[BURN_IN_ROWS:] for each in parts_of_errors)
            found.append(ValidationErrors(name, times, left, std, own.T, True, adaptation=adapted))
    scores: dict[str, dict[int | str, Ahead]] = {}
    for (name, step), pieces in parts.items():
        joined = np.concatenate(pieces, axis=1)
        if joined.shape[1]:
            scores.setdefault(name, {})[step] = Ahead.of(joined[0], joined[1], validated[name])
    return scores, [concatenate_errors(found) for found in errors.values() if found]
