"""A planned experiment: how well parameters will be known, how long it has to last, and which sensors it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lodekit.arguments import check_parameters, check_positive
from lodekit.cards import card, paragraph, table
from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.units import Units
from lodekit.learning.curvature import curvature_at
from lodekit.learning.estimates import NOT_IDENTIFIED, Estimate, estimate_parameters
from lodekit.preparing import prepare, prepare_record
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.rounding import format_number
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.system import System

__all__ = ["Assumed", "Experiment"]

Array = NDArray[np.float64]
#: With more sensors than this, only single ones, pairs and all of them together are looked at.
_FEW = 4


@dataclass(frozen=True, repr=False)
class Experiment:
    """A planned experiment: the standard errors that its parameters will have.

    Parameters
    ----------
    estimates : dict of str to Estimate
        The parameters at the values that were assumed, with the errors and intervals to expect.
    observables : tuple of str
        What would be measured.
    window : (float, float)
        The first and the last time of a measurement.
    count : int
        How many measurements there would be.
    notes : tuple of str
        What else there is to say, such as that an input is not given.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> found = lk.plan_experiment(decay, np.arange(0, 10, 0.5), {"a": 0.3}, noise={"x": 0.02}, start={"x": 1.0})
    >>> found
    Planned: x, 20 measurements, t from 0 to 9.5
                           value     std err    relative
    a                        0.3      0.0064        2.1%
    """

    estimates: dict[str, Estimate]
    observables: tuple[str, ...]
    window: tuple[float, float]
    count: int
    _assumed: Assumed = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()

    @property
    def std_errors(self) -> dict[str, float]:
        """The standard errors to expect of the parameters, by name; infinite where these data would not tell one."""
        return {name: each.std_error for name, each in self.estimates.items()}

    @property
    def relative(self) -> dict[str, float]:
        """The standard errors over the values of the parameters: 0.01 stands for one percent."""
        return {
            name: each.std_error / abs(each.value) if each.value else math.inf for name, each in self.estimates.items()
        }

    def duration(self, target: float, parameters: Iterable[str] | None = None) -> float:
        """Return how long the same experiment has to last until parameters are known well enough.

        Parameters
        ----------
        target : float
            The relative standard error that is wanted: 0.01 for one percent.
        parameters : sequence of str, optional
            Which ones; all by default.

        Returns
        -------
        float
            From the first measurement on; infinite where even all of the planned times are not enough.

        Examples
        --------
        >>> import numpy as np
        >>> import lodekit as lk
        >>> decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
        >>> found = lk.plan_experiment(decay, np.arange(0, 10, 0.1), {"a": 0.3}, noise={"x": 0.02}, start={"x": 1.0})
        >>> 2.0 < found.duration(0.03) < 6.0, found.duration(0.001)
        (True, inf)
        """
        check_positive("target", target)
        asked = self._asked(parameters)
        times = np.unique(np.concatenate([self._assumed.times[name] for name in self.observables]))
        low, high = 0, len(times)
        if self._worst(times[-1], asked) > target:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._worst(times[middle - 1], asked) <= target else (middle, high)
        return float(times[high - 1] - times[0])

    def sensors(self) -> dict[tuple[str, ...], dict[str, float]]:
        """Return the relative standard errors with some of the planned sensors alone: of each set, fewest first.

        With more than four sensors, of single ones, pairs, and all of them.

        Examples
        --------
        >>> import numpy as np
        >>> import lodekit as lk
        >>> tanks = lk.System("a' = -k*a + q; b' = k*a - m*b", parameters=["k", "m"])
        >>> assumed = dict(noise={"a": 0.01, "b": 0.01}, inputs={"q": 1.0})
        >>> found = lk.plan_experiment(tanks, np.arange(0, 20.0), {"k": 0.5, "m": 0.2}, **assumed).sensors()
        >>> [sensors for sensors, errors in found.items() if max(errors.values()) < 0.05]
        [('b',), ('a', 'b')]
        """
        every = self.observables
        sizes: Sequence[int] = range(1, len(every) + 1) if len(every) <= _FEW else (1, 2, len(every))
        return {own: self._assumed.look(own).relative for size in sizes for own in combinations(every, size)}

    def records(self, target: float, parameters: Iterable[str] | None = None) -> float:
        """Return how many such experiments are needed until parameters are known well enough.

        Errors fall with the root of the number of records that are fitted together. Infinite where one record tells
        nothing of a parameter.

        Parameters
        ----------
        target, parameters
            As in `duration`.
        """
        check_positive("target", target)
        worst = max((self.relative[name] for name in self._asked(parameters)), default=0.0)
        return float(math.ceil(max(worst / target, 1.0) ** 2)) if math.isfinite(worst) else math.inf

    def _asked(self, parameters: Iterable[str] | None) -> list[str]:
        names = [name for name, each in self.estimates.items() if each.note != "fixed"]
        asked = names if parameters is None else [parameters] if isinstance(parameters, str) else list(parameters)
        check_parameters(names, asked)
        return asked

    def _worst(self, last: float, asked: Sequence[str]) -> float:
        found = self._assumed.look(self.observables, last).relative
        return max((found[name] for name in asked), default=0.0)

    def _lines(self) -> list[list[str]]:
        shares = [100.0 * share for share in self.relative.values()]
        return [
            [name, format_number(each.value, 0.0), f"{each.std_error:.2g}", f"{share:.2g}%", ""]
            if each.has_interval
            else [name, format_number(each.value, 0.0), "", "", each.note]
            for (name, each), share in zip(self.estimates.items(), shares, strict=True)
        ]

    def _title(self) -> str:
        first, last = self.window
        return f"{', '.join(self.observables)}, {self.count} measurements, t from {first:.6g} to {last:.6g}"

    def __repr__(self) -> str:
        lines = [f"Planned: {self._title()}", f"{'':<16}{'value':>12}{'std err':>12}{'relative':>12}"]
        for name, value, error, share, note in self._lines():
            lines.append(f"{name:<16}{value:>12}" + (f"  {note}" if note else f"{error:>12}{share:>12}"))
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        head = ["parameter", "value", "std error", "relative", "note"]
        return card(
            "Planned experiment", self._title(), [table(head, self._lines(), text=(4,)), *map(paragraph, self.notes)]
        )


@dataclass(frozen=True, eq=False)
class Assumed:
    """What is assumed of an experiment: values, and what would be measured if they were true.

    Parameters
    ----------
    system : System
    arguments : Arguments
        How it would be fitted.
    signals : dict of str to InputSignal
        What would be set.
    hyper : Hyperparameters
        All values that are assumed.
    units : Units
        Of time; time zero is the start.
    noise : dict of str to float
        Of each observable.
    times : dict of str to array
        When each would be measured.
    curves : sequence of dict of str to array
        What would be measured: once and without noise, or drawn several times with noise where motions are random.
    hidden : str
        What is said of functions that nobody sets or measures, where parameters stay open.
    """

    system: System
    arguments: Arguments
    signals: Mapping[str, InputSignal]
    hyper: Hyperparameters
    units: Units
    noise: Mapping[str, float]
    times: Mapping[str, Array]
    curves: Sequence[Mapping[str, Array]]
    hidden: str = ""

    def look(self, names: Sequence[str], last: float = math.inf) -> Experiment:
        """Return what measurements of some observables, up to some time, would tell.

        Parameters
        ----------
        names : sequence of str
        last : float
            Later measurements are left out.
        """
        records = [self._measure(names, own, last) for own in self.curves]
        scales = {item.observable: item.scale for item in records[0].summaries if not item.is_zero}
        setup = prepare(self.system, self.arguments, records[0], time=self.units, scales=scales)
        levels = np.array([self.noise[name] for name in setup.prior.noise.observables])
        x = setup.layout.pack(replace(self.hyper, noise=levels[: setup.prior.noise.count]))
        found = []
        with setup.threads(), np.errstate(all="ignore"):
            for number, record in enumerate(records):
                parts = self.system, self.arguments, record, setup.prior, setup.layout, setup.case
                found.append(curvature_at((prepare_record(*parts) if number else setup).objective, x))
        estimates = _estimate(setup, x, found)
        is_open = any(math.isinf(each.std_error) for each in estimates.values())
        notes = (self.hidden,) if self.hidden and is_open else ()
        return Experiment(estimates, tuple(names), records[0].window, records[0].size, self, notes)

    def _measure(self, names: Sequence[str], curves: Mapping[str, Array], last: float) -> Measurements:
        data = Observations()
        for name in names:
            kept = self.times[name] <= last
            # Where nothing is random, curves have no noise to learn the level of; nor do parameters depend on it then.
            known = None if len(self.curves) > 1 else self.noise[name]
            data = data.add(self.times[name][kept], name, curves[name][kept], known)
        return replace(Measurements.of(data), inputs=dict(self.signals))


def _estimate(setup: Setup, x: Array, curvatures: Sequence[Array]) -> dict[str, Estimate]:
    """Return what to expect of each parameter, from the curvatures of one record or of several random ones."""
    layout, structure, held = setup.layout, setup.structure, np.zeros(len(x), dtype=bool)
    # Of what no data of this kind can tell, one parameter for each way is held: it says nothing of all others.
    for way in structure.directions:
        own = [layout.learned.index(k) for k, name in enumerate(layout.names) if name in way and k in layout.learned]
        held[[place for place in own if not held[place]][:1]] = True
    whole = estimate_parameters(layout, x, np.mean(curvatures, axis=0), held)
    each = [estimate_parameters(layout, x, own, held) for own in curvatures]
    found = {name: _together(known, [own[name] for own in each]) for name, known in whole.items()}
    for name in structure.undetermined:
        limits = layout.transforms[layout.names.index(name)]
        unknown = math.inf, (limits.low, limits.high), False, NOT_IDENTIFIED
        found[name] = Estimate(found[name].value, *unknown)
    return found


def _together(whole: Estimate, found: Sequence[Estimate]) -> Estimate:
    """Return one estimate for several random motions: its error is what fits to all of them would scatter by."""
    told = [each for each in found if each.has_interval]
    if not whole.has_interval or 2 * len(told) <= len(found):
        # Away from an optimum a single record need not bend down everywhere; all of them together do.
        return whole
    error = float(np.sqrt(np.mean([each.std_error**2 for each in told])))
    return replace(min(told, key=lambda each: abs(each.std_error - error)), std_error=error)
