"""A fitted model that takes rows as they come: the state, what it predicts, and alarms; the same cost for every row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.answers import deliver_curves, read_observables
from lodekit.data.noise import EXACT
from lodekit.errors import DataError, LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.online import Leap, Leaps, advance, take
from lodekit.inference.markov.states import Space
from lodekit.online import cusum
from lodekit.online.known import Plant
from lodekit.online.moment import Innovation, Moment
from lodekit.online.readings import Readings
from lodekit.online.remembered import Remembered, resolution_at
from lodekit.online.saving import save_moment
from lodekit.wording import count

__all__ = ["Stream"]

Array = NDArray[np.float64]
#: Observables that were asked for are kept compiled, so many of them.
_KEPT = 16


class Stream:
    """A filter at the learned parameters; `LODEGP.stream` makes it.

    Parameters
    ----------
    fit : Fit
        Of one record.
    space : Space
        The prior as a linear system.
    plant : Plant or None
        The response to known inputs, where there are some.
    moment : Moment
        Where it begins.
    false_alarms : float
        How often there is an alarm where the model holds, for each row.
    shift : float
        The change of scores that is found fastest.
    threshold : float
        Cumulative sums above it make an alarm.
    """

    def __init__(
        self,
        fit: Fit,
        space: Space,
        plant: Plant | None,
        moment: Moment,
        *,
        false_alarms: float,
        shift: float,
        threshold: float,
    ) -> None:
        self.fit, self.space, self.plant, self.moment = fit, space, plant, moment
        self.false_alarms, self.shift, self.threshold = float(false_alarms), float(shift), threshold
        self.observables = fit.prior.noise.observables
        self._measured = Readings.of(fit, space, plant, self.observables)
        self._measured.check_measured(self.observables)
        self._index = {name: number for number, name in enumerate(self.observables)}
        self._kinds = {} if plant is None else plant.kinds
        scales = fit.prior.units.scales
        self._exact = [EXACT * float(scale) for scale in scales]
        self._noise = [max(fit.typical_noise(n), e) for n, e in zip(self.observables, self._exact, strict=True)]
        leaps, span = Leaps(space), fit.prior.units.span
        self._leaps: Remembered[Leap] = Remembered(lambda length: leaps.make(length / span))
        self._asked: dict[tuple[str, ...], Readings] = {}

    def __repr__(self) -> str:
        rows, alarms = count(self.rows, "row"), count(self.alarms, "alarm")
        return f"Stream({', '.join(self.observables)}; {rows}, t = {self.time}, {alarms})"

    @property
    def time(self) -> float | None:
        """The time of the state, that of the last row; None before the first one of a new record."""
        return self.moment.time

    @property
    def rows(self) -> int:
        """How many rows were pushed."""
        return self.moment.rows

    @property
    def alarms(self) -> int:
        """How many alarms there were."""
        return self.moment.alarms

    @property
    def innovations(self) -> dict[str, Innovation]:
        """What was measured in the last row, by observable, and what had been expected."""
        return dict(self.moment.last)

    @property
    def sums(self) -> dict[str, tuple[float, float]]:
        """The cumulative sums of scores, upward and downward, by observable; `threshold` makes an alarm of them."""
        return dict(zip(self.observables, self.moment.sums, strict=True))

    @property
    def state(self) -> Array:
        """The mean of the states: free functions and their derivatives, then modes, in scaled units, shape (s,)."""
        return self.moment.mean.copy()

    @property
    def covariance(self) -> Array:
        """The covariance of the states, shape (s, s)."""
        return self.moment.root @ self.moment.root.T

    def push(
        self, t: Any, y: Mapping[str, Any] | None = None, inputs: Mapping[str, Any] | None = None, *, std: Any = None
    ) -> dict[str, Innovation]:
        """Take one more row; return what was measured, by observable, and what had been expected.

        A row that is refused changes nothing.

        Parameters
        ----------
        t : float or date
            The time of the row, not before that of the last one.
        y : dict of str to float
            What was measured, by observable of the fit; those that are missing, None or NaN were not measured. Inputs
            may stand here as well.
        inputs : dict of str to float
            All known inputs at this time. A held one that is None or NaN stays as it was.
        std : float or dict of str to float, optional
            Known noise of these values, zero where they are exact; as in the fit otherwise.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
        >>> stream = gp.stream()
        >>> found = stream.push(4.0, {"x": 0.02})
        >>> abs(found["x"].predicted - 0.018) < 0.01
        True
        """
        before = self.moment
        time = self._read_time(t)
        values, given = self._read_row(y, inputs)
        noise = self._noise if std is None else self._read_std(std)
        undo = {name: before.samples[name].add(time, value) for name, value in given.items()}
        try:
            with np.errstate(all="ignore"):
                found, after = self._take(before, time, values, noise)
        except Exception:
            for name, old in undo.items():
                before.samples[name].restore(old)
            raise
        if self.plant is not None:
            self.plant.forget(after.samples, time)
        self.moment = after
        return found

    def _take(
        self, before: Moment, time: float, values: list[tuple[int, float]], noise: Sequence[float]
    ) -> tuple[dict[str, Innovation], Moment]:
        """Return what a row says, and the moment after it."""
        leap, response, leads = self._go(before, time)
        view, numbers = self._measured, [number for number, _ in values]
        rows = view.rows if len(numbers) == len(view.rows) else view.rows[numbers]
        own = [noise[number] for number in numbers]
        taken = take(leap, before.mean, before.root, rows, np.array(own))
        known = view.known(response, before.samples, time)
        expected = rows @ taken.mean
        if known is not None:
            expected += known if rows is view.rows else known[numbers]
        measured = np.array([value for _, value in values])
        errors = measured - expected
        spread = np.sqrt(np.square(taken.deviations).sum(axis=0))
        parts = (numbers, measured.tolist(), expected.tolist(), spread.tolist())
        found, sums, alarms = self._judge(before, zip(*parts, strict=True))
        if not all(math.isfinite(item.score) for item in found.values()):
            raise DataError(f"the solution overflows at t = {time:g}; expected a new stream, gp.stream(fresh=True)")
        mean = taken.updated(errors)
        return found, Moment(
            time, mean, taken.root, response, before.samples, sums, leads, before.rows + 1, alarms, found
        )

    def _judge(
        self, before: Moment, row: Iterable[tuple[int, float, float, float]]
    ) -> tuple[dict[str, Innovation], list[tuple[float, float]], int]:
        """Return what a row says, the sums after it, and how many alarms there were."""
        found, sums, alarms, reference = {}, list(before.sums), before.alarms, 0.5 * self.shift
        for number, measured, expected, deviation in row:
            score = (measured - expected) / deviation
            high, low, alarm = cusum.update(sums[number], score, reference, self.threshold)
            sums[number] = high, low
            alarms += bool(alarm)
            found[self.observables[number]] = Innovation(measured, expected, deviation, score, alarm)
        return found, sums, alarms

    def _go(self, before: Moment, time: float) -> tuple[Leap | None, Array, tuple[float, float]]:
        """Return the step of the states to a time from now on, the response there, and how far both are ahead of it."""
        response, (lead, own_lead) = before.response, before.leads
        if before.time is None:
            return None, response, before.leads
        wanted, resolution = (time - before.time) - lead, resolution_at(time)
        if wanted <= resolution:
            leap, lead = None, -wanted
        else:
            length, leap = self._leaps.find(wanted, resolution)
            lead = length - wanted
        if self.plant is not None:
            response, own_lead = self.plant.advance(response, before.samples, before.time, time, own_lead)
        return leap, response, (lead, own_lead)

    def _read_time(self, t: Any) -> float:
        # Most rows come with a plain number, which needs no arrays.
        if isinstance(t, float):
            time = t
        else:
            times = self.fit.times([t] if np.ndim(t) == 0 else t)
            if times.shape != (1,):
                raise DataError(f"expected the time of one row, got {len(times)} times")
            time = float(times[0])
        if not math.isfinite(time):
            raise DataError(f"expected a finite time, got {time}")
        last = self.moment.time
        if last is not None and time < last:
            raise DataError(f"expected rows in the order of time, got t = {time:g} after t = {last:g}")
        return time

    def _read_row(self, y: Any, inputs: Any) -> tuple[list[tuple[int, float]], dict[str, float]]:
        """Return measurements by number, and samples of inputs by name."""
        for what, part in (("y", y), ("inputs", inputs)):
            if part is not None and not isinstance(part, Mapping):
                raise LodekitError(f"expected {what} as a dict of names to numbers, got {type(part).__name__}")
        values, given = [], dict(inputs) if inputs else {}
        for name, value in (y or {}).items():
            number = self._index.get(name)
            if number is None:
                if name not in self._kinds:
                    raise self._unknown(name)
                if name in given:
                    raise DataError(f"the input {name} stands in y and in inputs; expected it in one of them")
                given[name] = value
                continue
            found = _read_value(name, value)
            if found is not None:
                values.append((number, found))
        return values, self._read_inputs(given) if given or self._kinds else {}

    def _read_inputs(self, given: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for name, value in given.items():
            if name not in self._kinds:
                raise self._unknown(name)
            number = _read_value(name, value)
            if number is not None:
                found[name] = number
        for name, kind in self._kinds.items():
            if name in found:
                continue
            if name not in given:
                raise DataError(f"expected the known input {name} in every row, inputs={{'{name}': ...}}, got none")
            if kind == "linear":
                raise DataError(
                    f"expected a value of {name} in every row, as it is linear between its samples, got none"
                )
            if not self.moment.samples[name].times:
                raise DataError(f"expected a value of {name} in the first row of a record, got none")
        return found

    def _unknown(self, name: object) -> LodekitError:
        known = ", ".join(self.observables)
        inputs = f", and the inputs {', '.join(self._kinds)}" if self._kinds else ""
        return LodekitError(f"expected what was measured in the fit, {known}{inputs}, got {name!r}")

    def _read_std(self, std: Any) -> list[float]:
        given = std if isinstance(std, Mapping) else dict.fromkeys(self.observables, std)
        found = list(self._noise)
        for name, value in given.items():
            if name not in self._index:
                raise self._unknown(name)
            number = _read_value(f"the noise of {name}", value)
            if number is None:
                continue
            if number < 0:
                raise DataError(f"expected a standard deviation of zero or more for {name}, got {number:g}")
            place = self._index[name]
            found[place] = max(number, self._exact[place])
        return found

    def predict(
        self, t: ArrayLike | None = None, observable: str | Sequence[str] | None = None, return_std: bool = False
    ) -> Any:
        """Return means of observables now or later, without noise, and standard deviations on request.

        All is at the learned parameters. Inputs stay as they are: held ones at their last value, linear ones, too.

        Parameters
        ----------
        t : array-like, shape (n,), or a number
            Times, none before the last row; now by default.
        observable : str or sequence of str, optional
            As in `LODEGP.predict`: linear differential expressions of the channels, all channels by default.
        return_std : bool
            Whether standard deviations are wanted as well.

        Returns
        -------
        mean : array, shape (n, channels), or (n,) for an observable given as text
        std : array of the same shape, where it is asked for

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
        >>> mean, std = gp.stream().predict([3.0, 4.0], "x", return_std=True)
        >>> mean.shape, bool(mean[1] < mean[0])
        ((2,), True)
        """
        now = self.moment
        if now.time is None:
            raise LodekitError("a new record has not begun yet; expected a row first, push(t, y)")
        texts, single = read_observables(self.fit, observable)
        view = self._readings_of(tuple(texts))
        times = np.array([now.time]) if t is None else self.fit.times(t)
        if len(times) and float(times.min()) < now.time:
            raise DataError(f"expected times from t = {now.time:g} on, that of the last row, got t = {times.min():g}")
        mean, std = np.zeros((2, len(times), len(texts)))
        with np.errstate(all="ignore"):
            for place, time in enumerate(times.tolist()):
                leap, response, _ = self._go(now, time)
                own, root = advance(leap, now.mean, now.root)
                known = view.known(response, now.samples, time)
                mean[place] = view.rows @ own + (0.0 if known is None else known)
                std[place] = np.sqrt(np.sum((view.rows @ root) ** 2, axis=1))
        return deliver_curves([mean, std] if return_std else [mean], times, single=single)

    def _readings_of(self, texts: tuple[str, ...]) -> Readings:
        found = self._asked.get(texts)
        if found is None:
            if len(self._asked) >= _KEPT:
                self._asked.clear()
            found = self._asked[texts] = Readings.of(self.fit, self.space, self.plant, texts)
        return found

    def save(self, path: str | Path) -> None:
        """Write the state to a file: JSON and arrays, whole or not at all; ``gp.stream(resume=path)`` goes on from it.

        Its size does not depend on how many rows there were.

        Parameters
        ----------
        path : str or Path
            The file; an old one is replaced.
        """
        save_moment(self.fit, self.moment, path, {"false_alarms": self.false_alarms, "shift": self.shift})


def _read_value(name: str, value: Any) -> float | None:
    """Return a number, or None where it is missing."""
    if value is None:
        return None
    if isinstance(value, bool | str | bytes):
        raise DataError(f"expected a number for {name}, got {value!r}")
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise DataError(f"expected a number for {name}, got {type(value).__name__}") from None
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise DataError(f"expected a finite number for {name}, got {number}")
    return number
