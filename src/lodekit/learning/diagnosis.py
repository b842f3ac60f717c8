"""The diagnosis of a fit, computed once and said alike everywhere: what failed, what data do not tell, what is left.

A search has failed where it did not settle, ran to a limit of its own, or ended clearly below smooth curves that obey
no equation. That is another matter than data that do not tell a parameter: there any search ends anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements, Summary
from lodekit.data.observations import Series
from lodekit.data.records import padded
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.innovations import find_innovations
from lodekit.inference.engine import Posterior
from lodekit.learning.estimates import NOT_IDENTIFIED
from lodekit.learning.motion import Curves
from lodekit.learning.objective import Objective
from lodekit.learning.reference import Yardstick, measure_yardstick, take_runs
from lodekit.learning.residuals import Check, Innovations, Remainder, check_residuals, find_remainder, join_words
from lodekit.learning.search import UNKNOWN_AHEAD, Optimum
from lodekit.learning.verdicts import Structure, Verdict, give_verdicts, relative_errors
from lodekit.learning.whiteness import LEVEL, Whiteness
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import Prior
from lodekit.system.system import System

__all__ = ["Diagnosis", "Evidence", "diagnose", "runs_of"]

#: How many nats below smooth curves a fit must be to have failed, and how many more for each measurement.
_MARGIN, _MARGIN_EACH = 10.5, 0.05
#: So many times the noise that smooth curves leave, and more than this share of the variance of the data.
_CLEARLY, _MATTERS = 3.0, 0.2
#: Residuals so many times as large as known noise say that the fit has missed the data, or that the noise is not known.
_LOUD = 10.0
#: Innovations come from so many runs of so many measurements at most.
_RUNS, _RUN = 6, 500
#: A standard error beyond this on the scale of the search says nothing.
_LOST = 3.0


@dataclass(frozen=True)
class Diagnosis:
    """What is to be known about a fit before it is believed.

    Parameters
    ----------
    trouble : tuple of str
        Why the search has failed, in sentences; empty where it has not.
    verdicts : dict of str to Verdict
        What was found out about parameters beside the curvature.
    combinations : tuple of str
        What is determined of parameters that exact algebra shows to be undetermined, such as ``k/m``.
    symmetries : tuple of tuples of str
        Parameters whose signs can change together.
    checks : tuple of Check
        What the residuals of each observable say.
    advantage : float
        By how much the log evidence exceeds that of smooth curves that obey no equation, over the measurements that
        were compared; NaN where they were not.
    widening : dict of str to float
        By which factor the standard error of a parameter is larger than the curvature says, because residuals are
        correlated; empty where nothing was widened.
    """

    trouble: tuple[str, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    combinations: tuple[str, ...] = ()
    symmetries: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    advantage: float = math.nan
    widening: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the search has failed."""
        return bool(self.trouble)

    @property
    def explained(self) -> dict[str, float]:
        """The share of the variance of each observable that the curves explain; none for what does not change.

        Of several records that which is explained least counts.
        """
        found: dict[str, float] = {}
        for check in self.checks:
            if not math.isnan(check.explained):
                found[check.name] = min(found.get(check.name, math.inf), check.explained + 0.0)
        return found

    @property
    def notes(self) -> list[str]:
        """What is worth knowing and no reason to worry."""
        return [
            f"the data do not tell the sign{'s' * (len(names) > 1)} of {join_words(names)}: "
            f"{'all of them' if len(names) > 2 else 'both' if len(names) == 2 else 'it'} can change"
            f"{' together' * (len(names) > 1)}; reported is what has the most positive values"
            for names in self.symmetries
        ]

    def of_record(self, name: str) -> Diagnosis:
        """Return the same with the residuals of one record alone."""
        own = (replace(check, record="") for check in self.checks if check.record == name)
        return replace(self, checks=tuple(own))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is not finite is None."""
        return {
            "trouble": list(self.trouble),
            "verdicts": {name: _plain(asdict(verdict)) for name, verdict in self.verdicts.items()},
            "combinations": list(self.combinations),
            "symmetries": [list(names) for names in self.symmetries],
            "checks": [_plain(asdict(check)) for check in self.checks],
            "advantage": _plain(self.advantage),
            "widening": dict(self.widening),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Diagnosis:
        """Return what `to_dict` has taken apart."""
        verdicts = {}
        for name, each in state["verdicts"].items():
            edges = each["interval"]
            interval = None if edges is None else tuple(
                (-math.inf, math.inf)[k] if edge is None else float(edge) for k, edge in enumerate(edges)
            )  # fmt: skip
            verdicts[name] = Verdict(bool(each["identified"]), str(each["note"]), str(each["reason"]), interval)  # type: ignore[arg-type]
        advantage = state["advantage"]
        return cls(
            tuple(state["trouble"]),
            verdicts,
            tuple(state["combinations"]),
            tuple(tuple(names) for names in state["symmetries"]),
            tuple(_read_check(check) for check in state["checks"]),
            math.nan if advantage is None else float(advantage),
            dict(state.get("widening", {})),
        )


def _read_check(state: Mapping[str, Any]) -> Check:
    """Return a check that was taken apart; those of older files have no tests of independence."""
    found: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
    own = found.pop("whiteness", None)
    return Check(**found, whiteness=Whiteness.from_dict(own) if isinstance(own, Mapping) else None)


def _plain(value: Any) -> Any:
    """Return values that JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Evidence:
    """All that a diagnosis looks at.

    Parameters
    ----------
    system : System
    objective : Objective
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective at the optimum, from which errors come.
    posterior : Posterior
        At the optimum.
    measurements : Measurements
    level : function
        From an observable to the standard deviation of its noise.
    evidence_on : function
        From measurements to their log evidence at the optimum.
    parts : dict of str to Evidence
        The same of each of several records, by name; empty where there is one.
    """

    system: System
    objective: Objective
    optimum: Optimum
    curvature: NDArray[np.float64]
    posterior: Posterior
    measurements: Measurements
    level: Callable[[str], float]
    evidence_on: Callable[[Measurements], float]
    parts: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.objective.engine.prior

    @cached_property
    def curves(self) -> list[Curves]:
        """The fitted curves of each record."""
        if self.parts:
            return [curves for part in self.parts.values() for curves in part.curves]
        kept, theta = self.measurements, self.objective.layout.unpack(self.optimum.x).theta
        return [Curves(self.system, self.prior, self.posterior, theta, kept.window, kept.names)]

    def checks(self) -> tuple[Check, ...]:
        """Return what the residuals say; of sums over measurements only the share of the variance is known."""
        if self.parts:
            found = ((name, part.checks()) for name, part in self.parts.items())
            return tuple(replace(check, record=name) for name, checks in found for check in checks)
        if self.measurements.sums is not None:
            return tuple(self._summed(each) for each in self.measurements.summaries)
        series = self.measurements.series
        return tuple(
            check_residuals(
                item, self.remainder(item), self.level(item.observable), self.measurements.inputs, LEVEL / len(series)
            )
            for item in series
        )

    def remainder(self, item: Series) -> Remainder:
        """Return what the fit leaves of the measurements of one observable, in memory.

        Parameters
        ----------
        item : Series
            One of the measurements.
        """

        def mean(times: NDArray[np.float64]) -> NDArray[np.float64]:
            if all(np.array_equal(item.times, other.times) for other in self.measurements.series):
                return self.curves[0].together(times)[:, self.prior.noise.observables.index(item.observable)]
            reader = ObservableReader(self.system, self.measurements.inputs)
            compiled = reader.compile_plain([item.observable], self.prior.units)
            return self.posterior.mean(compiled, times)[:, 0]

        return find_remainder(item, mean, self.level(item.observable), self.innovations)

    @cached_property
    def innovations(self) -> Innovations | None:
        """What measurements add to those before them, in a few runs of neighbours where there are many.

        None without free functions, where some measurements are exact, or where rounding hides it.
        """
        if self.measurements.has_exact_values or not self.prior.processes:
            return None
        hyper = self.objective.layout.unpack(self.optimum.x)
        found: list[tuple[Sequence[Series], list[NDArray[np.float64]]]] = []
        every = padded(self.measurements, self.prior.noise.observables).series
        for run in runs_of(every):
            values = find_innovations(DenseData.of(self.prior, run), hyper)
            if values is None:
                return None
            found.append((run, values))
        if not found:
            return None
        times: dict[str, NDArray[np.float64]] = {}
        values_of: dict[str, NDArray[np.float64]] = {}
        for k, item in enumerate(every):
            times[item.observable] = np.concatenate([run[k].times for run, _ in found])
            values_of[item.observable] = np.concatenate([values[k] for _, values in found])
        return Innovations(times, values_of)

    def _summed(self, item: Summary) -> Check:
        level = self.level(item.observable)
        explained = 1.0 - (level / item.spread) ** 2 if item.spread > 0 else math.nan
        return Check(item.observable, item.count, 0, 1.0, 0.0, explained)


def runs_of(series: Sequence[Series]) -> Iterator[Sequence[Series]]:
    """Yield all measurements, or those in a few runs of neighbouring times where there are many.

    Parameters
    ----------
    series : sequence of Series
        Of each observable.
    """
    times = np.sort(np.concatenate([item.times for item in series]))
    if len(times) <= _RUN:
        yield series
        return
    after = -math.inf
    for first in np.linspace(0, len(times) - _RUN, _RUNS).astype(int).tolist():
        low, high = float(times[first]), float(times[first + _RUN - 1])
        run = [item.take((item.times >= low) & (item.times <= high) & (item.times > after)) for item in series]
        after = high
        if all(len(item.times) for item, whole in zip(run, series, strict=True) if len(whole.times)):
            yield run


def diagnose(
    evidence: Evidence, structure: Structure | None = None, verdicts: Mapping[str, Verdict] | None = None
) -> Diagnosis:
    """Return the diagnosis of a fit.

    Parameters
    ----------
    evidence : Evidence
    structure : Structure, optional
        What the equations say; None where nothing was searched for, and only residuals are looked at.
    verdicts : dict of str to Verdict, optional
        What is known already about parameters, where nothing was searched for.
    """
    with np.errstate(all="ignore"):
        checks = evidence.checks()
        if structure is None:
            return Diagnosis(verdicts=dict(verdicts or {}), checks=checks)
        advantage, poor = _compare_records(evidence, checks)
        trouble = [*_unsettled(evidence), *poor]
        if poor:
            errors = relative_errors(evidence.objective, evidence.optimum, evidence.curvature)
            # Where a search ended in a poor place, what is flat there says nothing about the data.
            loud = any(check.size > _LOUD for check in checks)
            lost = [name for name, error in errors.items() if loud or not 0.0 < error < _LOST]
            found = {name: Verdict(False, "unknown, the search failed", "failed") for name in lost}
            found |= {name: Verdict(False, NOT_IDENTIFIED, "structure") for name in structure.undetermined}
        else:
            found = give_verdicts(structure, evidence.curves, evidence.objective, evidence.optimum, evidence.curvature)
    symmetries = tuple(tuple(n for n in structure.system.parameters if n in s) for s in structure.symmetries)
    return Diagnosis(tuple(trouble), found, tuple(structure.combinations), symmetries, checks, advantage)


def _unsettled(evidence: Evidence) -> list[str]:
    """Return whether the search has not come to an end, in sentences."""
    optimum, layout = evidence.optimum, evidence.objective.layout
    found = []
    if optimum.message == UNKNOWN_AHEAD:
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
        for position, number in enumerate(layout.learned)
        if optimum.at_bound[position] and layout.transforms[number].is_unbounded
    ]
    if far:
        found.append(f"the search took {join_words(far)} to the limit of what it tries: give start values or bounds")
    return found


def _compare_records(evidence: Evidence, checks: Sequence[Check]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, over all records, and which are clearly worse."""
    if not evidence.parts:
        return _compare(evidence, checks)
    advantages, found = [], []
    for name, part in evidence.parts.items():
        advantage, poor = _compare(part, [check for check in checks if check.record == name])
        advantages.append(advantage)
        found += [f"record {name}: {text}" for text in poor]
    known = [each for each in advantages if not math.isnan(each)]
    return sum(known) if known else math.nan, found


def _compare(evidence: Evidence, checks: Sequence[Check]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, and what follows where it is clearly worse."""
    kept = evidence.measurements
    # Where curves explain the data, no yardstick is needed.
    if kept.sums is not None or not any(1.0 - each.explained > _MATTERS or each.size > _LOUD for each in checks):
        return math.nan, []
    runs = take_runs(kept)
    yardstick = measure_yardstick(runs.series, evidence.prior.noise.of_some(runs.names), evidence.prior.units.span)
    if yardstick is None:
        return math.nan, []
    own = evidence.posterior.value if runs is kept else evidence.evidence_on(runs)
    advantage = own - yardstick.log_evidence
    poor = _poorer(checks, yardstick, {each.observable: each.spread for each in kept.summaries})
    # What was chosen for a yardstick makes it look a little better than it is.
    if not poor or not advantage < -(_MARGIN + _MARGIN_EACH * yardstick.size):
        return advantage, []
    return advantage, [
        "the search ended in a poor place, or the equations do not describe these data"
        f"{', or their noise is larger than was said' if any(each.size > _LOUD for each in checks) else ''}: "
        f"smooth curves that obey no equation are more likely by {-advantage:.0f} nats, and leave less of "
        f"{join_words(poor)} to the noise; try "
        "start values, bounds or more restarts, and check the equations, the units and the data"
    ]


def _poorer(checks: Sequence[Check], yardstick: Yardstick, spreads: Mapping[str, float]) -> list[str]:
    """Return observables of which smooth curves explain clearly more, each with both shares."""
    found = []
    for check in checks:
        if math.isnan(check.explained) or check.count < 5:
            continue
        left = 1.0 - check.explained
        # The size of the noise in units of the spread of the data.
        share = (yardstick.noise[check.name] / spreads[check.name]) ** 2
        if check.size > _LOUD or (left > _CLEARLY * share and left > _MATTERS):
            both = max(1.0 - share, 0.0), max(check.explained, 0.0)
            found.append(f"{check.name} ({both[0]:.0%} against {both[1]:.0%} explained)")
    return found
