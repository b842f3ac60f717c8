"""Validation on a record that was not used: a free run from the inputs alone, and predictions some steps ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.ahead import read_ahead
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series
from lodekit.data.records import Pool
from lodekit.data.sources import read_source
from lodekit.errors import AlgebraError, DataError, EquationError, LodekitError
from lodekit.fitted import Fit
from lodekit.inference.innovations import is_filtered, runs_of, take_turns
from lodekit.inference.turns import Lead, Turns
from lodekit.learning.diagnosis.held_out import Errors, find_misses, join_errors
from lodekit.preparing import prepare
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.reading import column_checks
from lodekit.setup import Setup
from lodekit.spreads import FIRST, Band, find_bands, predict_within
from lodekit.validated import Ahead, ChannelValidation, Validation
from lodekit.wording import join_words

__all__ = ["validate"]

Array = NDArray[np.float64]
#: From all that was learned to measurements in their turn; None where rounding hides what these add.
_Again = Callable[[Hyperparameters], Turns | None]
#: The prior of an initial state is so many times as wide as what is to be explained.
_WIDE = 10.0
#: Modes with a smaller share than this of the largest power in the data are not seen in them.
_SEEN = 1e-12


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
) -> Validation:
    """Return how well a record that was not used is predicted from its inputs: fit percentages, coverage, density.

    Nothing is learned anew. The free run knows inputs over the whole record, and of all else no more than what the
    initial state takes. What it is uncertain of (parameters, initial state, free functions that remain, noise) is in
    its band.

    Parameters
    ----------
    t, Y, noise_std, time, columns, dt
        The record, as in `fit`; columns are those of the file of the fit where nothing else is said.
    given : str or sequence of str, optional
        Where the fit has no known inputs: the channels that are taken as known over the whole record, by conditioning
        on their measurements. By default those that leave nothing free, where that is clear.
    start : {"all"} or int
        Where the initial state comes from: from all rows, as a few numbers that no record this long can hide behind;
        or from the first so many rows, which are then not counted. Where the prior has free functions or
        disturbances, all rows would tell these as well: the first ten are taken then, as `start` of the result says.
    ahead : sequence of int or str
        For how many rows ahead, or times such as ``"24 h"``, predictions from all measurements before are tried as
        well; of long records in six runs, with the Markov engine of the whole. Bands follow errors before.

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
    record = _read(fit, t, Y, noise_std, time=time, columns=columns, dt=dt)
    known, count = _read_given(fit, record, given), _read_start(fit, start)
    run = _Run(fit, record, known)
    channels, errors = run.free_run(count)
    steps = run.ahead(ahead if isinstance(ahead, Iterable) and not isinstance(ahead, str) else [ahead])
    misses = _misses(run, errors, count)
    found = tuple(replace(item, ahead=steps.get(item.name, {}), misses=misses.get(item.name, ())) for item in channels)
    words, names = _tell_start(fit, start, count), (*record.inputs, *known)
    return Validation(found, words, names, fit.labels.units, record.inputs, _doubts(fit), fit.labels.origin)


def _tell_start(fit: Fit, start: str | int, count: int | None) -> str:
    """Return where the initial state comes from, in words; and where all rows were asked for in vain, why."""
    told = "all rows" if count is None else f"the first {count} rows, which are not counted"
    if start == "all" and count is not None:
        unknown = join_words(list(fit.prior.disturbances)) or "free functions"
        told += f"; all rows would tell {unknown} as well, and the run would not be free"
    return f"the initial state is estimated from {told}"


def _misses(run: _Run, errors: Sequence[Errors], count: int | None) -> dict[str, tuple[str, ...]]:
    """Return what speaks against a model on a record, by observable; errors are those of the free run from all rows."""
    fit, inputs = run.fit, run.record.inputs
    if count is not None:
        errors = run.innovations() if fit.prior.is_random else run.free_run(None)[1]
    counts = {item.observable: item.count for item in fit.measurements.summaries}
    errors = [replace(own, learned=counts.get(own.name, 0)) for own in errors]
    delayed = {name.channel for name in fit.system.delayed_channels}
    return find_misses(errors, inputs, delayed, fit.labels.units.get("t", ""), fit.examined.white)


def _doubts(fit: Fit) -> tuple[str, ...]:
    """Return what the fit said of its own residuals, where that was no good news."""
    diagnosis, unit = (fit.whole or fit).diagnosis, fit.labels.units.get("t", "")
    widening = max(diagnosis.widening.values(), default=math.nan)
    return tuple(check.sentence(unit, widening) for check in diagnosis.checks if check.is_doubtful)


def _read(fit: Fit, t: Any, Y: Any, noise_std: Any, **options: Any) -> Measurements:
    """Return a record as measurements with known noise, and with the inputs of the fit."""
    options |= column_checks(fit.system)
    options |= {"since": fit.clock.origin, "units": fit.labels.units, "recalled": fit.labels.columns}
    source = read_source(t, Y, fit.system.plain_channels, noise_std=noise_std, **options)
    record = source.measurements
    if isinstance(record, Pool):
        raise DataError("expected one record, got several; validate them one by one")
    if record.sums is not None:
        raise DataError("the record has too many rows to be kept; expected fewer, such as a piece of it")
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    record = record.given(kinds) if kinds else record
    series = []
    for item in record.series:
        std = item.noise_with(fit.typical_noise(item.observable))
        if not (std > 0).all():
            raise DataError(f"{item.observable} has no noise, and no density without it; give noise_std=")
        series.append(replace(item, std=std))
    return replace(record, series=series)


def _read_given(fit: Fit, record: Measurements, given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the channels that are conditioned on."""
    names = [item.observable for item in record.series]
    asked = () if given is None else given
    found = tuple(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else (asked,)
    is_driven = bool(fit.measurements.inputs) or not fit.setup.reduced.free_functions
    if fit.prior.disturbances and (given is not None or not is_driven):
        # A filter takes measurements in the order of time, and a matrix knows no disturbances.
        raise LodekitError(
            "a fit with disturbances takes nothing as known over a whole record but its inputs; expected a fit with "
            f"inputs=, such as inputs={{{(*names, *found)[-1]!r}: 'hold'}}, and no given="
        )
    if given is not None:
        for name in found:
            if name not in names:
                raise LodekitError(f"expected given= among what the record holds, {', '.join(names)}, got {name!r}")
        return found
    if is_driven:
        return ()
    fitting = [
        each
        for each in combinations([name for name in names if name in fit.system.channels], fit.system.free_functions)
        if _leaves_nothing(fit, each)
    ]
    if not fitting:
        raise LodekitError(f"expected given=, the channels that are known; the record holds {', '.join(names)}")
    if len(fitting) > 1:
        options = " or ".join("(" + ", ".join(each) + ")" for each in fitting)
        raise LodekitError(f"expected given=, the channels that are known, such as {options}")
    return fitting[0]


def _leaves_nothing(fit: Fit, names: Sequence[str]) -> bool:
    if len(names) >= len(fit.system.channels):
        return False
    try:
        return not fit.system.given(names).free_functions
    except (AlgebraError, EquationError):
        return False


def _read_start(fit: Fit, start: str | int) -> int | None:
    """Return how many measurements of each observable tell the initial state; None for all."""
    if isinstance(start, str) and start == "all":
        return FIRST if fit.prior.is_random else None
    if isinstance(start, bool) or not isinstance(start, int) or start < 1:
        raise LodekitError(f"expected start='all' or a number of rows, got {start!r}")
    return start


class _Run:
    """A fit on another record, at what was learned."""

    def __init__(self, fit: Fit, record: Measurements, known: Sequence[str]) -> None:
        self.fit, self.record, self.known = fit, record, known
        self.units = replace(fit.prior.units, start=record.window[0])
        self.scales = dict(zip(fit.measurements.names, fit.prior.units.scales.tolist(), strict=True))

    @property
    def targets(self) -> list[Series]:
        """What is to be predicted."""
        return [item for item in self.record.series if item.observable not in self.known]

    def free_run(self, count: int | None) -> tuple[list[ChannelValidation], list[Errors]]:
        """Return predictions from what is known, with an initial state from all, or so many first measurements.

        And their errors, with what the uncertainty of all that was learned does to them.
        """
        targets = self.targets
        if not targets:
            raise DataError(f"expected measurements of what responds, got {join_words(self.known)} alone")
        if count is None:
            return self.predict(self.record, targets)
        first, rest = slice(0, count), slice(count, None)
        used = [item if item.observable in self.known else item.take(first) for item in self.record.series]
        return self.predict(replace(self.record, series=used), [item.take(rest) for item in targets])

    def setup(self, measurements: Measurements) -> Setup:
        """Return an engine on measurements of the record."""
        arguments = replace(self.fit.arguments, engine="auto")
        return prepare(self.fit.system, arguments, measurements, time=self.units, scales=self.scales)

    def starts(self, setup: Setup) -> Array:
        """Return deviations of modes so wide that the record alone tells its initial state.

        Those of the fit tell where that record began, which may have been at rest, unless they were left open.
        """
        prior, found = setup.prior, self.fit.hyperparameters.mode_deviations.copy()
        found *= self.fit.layout.open_modes is None
        coefficients = prior.observables.evaluate(self.fit.hyperparameters.theta)
        target, power = setup.engine.powers(coefficients)
        size = _WIDE * float(np.sqrt(target.max(initial=0.0)))
        for number, part in enumerate(np.split(power, np.cumsum([group.size for group in prior.groups])[:-1])):
            usable = part[part > _SEEN * power.max(initial=0.0)]
            if len(usable):
                found[number] = max(found[number], size / float(np.sqrt(usable.min())))
        return found

    def predict(self, used: Measurements, targets: Sequence[Series]) -> tuple[list[ChannelValidation], list[Errors]]:
        """Return predictions from some measurements for others, and their errors."""
        fit, setup = self.fit, self.setup(used)
        starts = self.starts(setup)

        def at(hyper: Hyperparameters) -> Any:
            return setup.posterior(replace(hyper, noise=np.zeros(0), mode_deviations=starts))

        posterior, uncertainty = at(fit.hyperparameters), replace(fit.uncertainty, posterior=at)
        found, errors = [], []
        for item in targets:
            if not len(item.times):
                raise DataError(f"{item.observable} has no more rows than its start takes; expected a longer record")
            observables = setup.reader.compile_plain([item.observable], setup.prior.units)
            with np.errstate(all="ignore"):
                mean = posterior.mean(observables, item.times)[:, 0]
                variance = posterior.variance(observables, item.times)[:, 0] / fit.share_left + item.std**2
                slopes = uncertainty.slopes(observables, item.times)[:, :, 0]
            std = np.sqrt(variance + np.sum(slopes**2, axis=0))
            found.append(ChannelValidation(item.observable, item.times, item.values, mean, std))
            errors.append(Errors(item.observable, item.times, item.values - mean, np.sqrt(variance), slopes))
        return found, errors

    def runs(self) -> Iterator[tuple[Sequence[Series], _Again]]:
        """Yield runs of the record, or all of it as one, each with what takes its measurements in their turn.

        Channels that are given come before all others.
        """
        setup, series, engine = self.setup(self.record), self.record.series, self.fit.choice.name
        change = {"noise": np.zeros(0), "mode_deviations": self.starts(setup)}
        order = [item.observable for item in series]
        first = frozenset(order.index(name) for name in self.known)
        for run in [series] if is_filtered(engine, setup.prior) and not first else runs_of(series):

            def again(hyper: Hyperparameters, run: Sequence[Series] = run) -> Turns | None:
                return take_turns(engine, setup.prior, run, replace(hyper, **change), first)

            yield run, again

    def innovations(self) -> list[Errors]:
        """Return errors one measurement ahead: where something unknown drives, those of a free run go together."""
        order = [item.observable for item in self.record.series]
        parts: dict[str, list[Errors]] = {item.observable: [] for item in self.targets}
        for _, again in self.runs():

            def answer(hyper: Hyperparameters, again: _Again = again) -> Array | None:
                own = again(hyper)
                return None if own is None else own.innovations * own.deviations

            turns = again(self.fit.hyperparameters)
            if turns is None:
                return []
            moves = self.fit.uncertainty.moves_of(answer)
            for name, own in parts.items():
                rows = turns.observables == order.index(name)
                # Where nothing is known of the initial state, nothing can be predicted.
                rows &= np.cumsum(rows) > FIRST
                wide = turns.deviations[rows] / np.sqrt(self.fit.share_left)
                values = (turns.innovations * turns.deviations)[rows]
                own.append(Errors(name, turns.times[rows], values, wide, moves[:, rows], innovations=True))
        return [join_errors(own) for own in parts.values() if own]

    def ahead(self, steps: Iterable[int | str]) -> dict[str, dict[int | str, Ahead]]:
        """Return how good predictions so far ahead are, by observable."""
        leads = {step: read_ahead(step, self.fit.clock.unit) for step in steps}
        if not leads:
            return {}
        order = [item.observable for item in self.record.series]
        first = [order.index(name) for name in self.known]
        bands = self.bands(list(leads.values()))
        wanted = [(order.index(item.observable), band) for item in self.targets for band in bands[item.observable]]
        parts: dict[tuple[str, int | str], list[Array]] = {}
        for run, again in self.runs():
            turns = again(self.fit.hyperparameters)
            if turns is None:
                return {}
            count = int(np.isin(turns.observables, first).sum())
            both = predict_within(self.fit.uncertainty, turns, again, wanted, self.fit.share_left, count)
            for (item, step), (number, band), own in zip(product(self.targets, leads), wanted, both, strict=True):
                # Where nothing is known of the initial state, nothing can be predicted.
                told = band.lead.known(run[number].times, run[number].times) > FIRST
                parts.setdefault((item.observable, step), []).append(np.stack([*own, run[number].values])[:, told])
        found: dict[str, dict[int | str, Ahead]] = {}
        for (name, step), each in parts.items():
            whole = np.concatenate(each, axis=1)
            if whole.shape[1]:
                found.setdefault(name, {})[step] = Ahead.of(*whole)
        return found

    def bands(self, leads: Sequence[Lead]) -> dict[str, list[Band]]:
        """Return how deviations so far ahead follow errors; where channels are given, as the model has them."""
        names = [item.observable for item in self.targets]
        if self.known:
            return {name: [Band(lead) for lead in leads] for name in names}
        return find_bands(self.fit, names, leads)
