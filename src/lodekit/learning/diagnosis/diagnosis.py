"""The diagnosis of a fit, computed once and said alike everywhere: what failed, what data do not tell, what is left.

A search has failed where it did not settle, ran to a limit of its own, or ended clearly below smooth curves that obey
no equation. That is another matter than data that do not tell a parameter: there any search ends anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from lodekit.learning.diagnosis.examined import Examined
from lodekit.learning.diagnosis.reference import Yardstick, measure_yardstick, take_runs
from lodekit.learning.diagnosis.residuals import Check
from lodekit.learning.diagnosis.resolution import parameters_between
from lodekit.learning.diagnosis.whiteness import Whiteness
from lodekit.learning.estimates import NOT_IDENTIFIED
from lodekit.learning.identifiability.rivals import Rival, find_rivals
from lodekit.learning.identifiability.structure import Structure
from lodekit.learning.identifiability.verdicts import (
    Verdict,
    compare_rivals,
    give_verdicts,
    relative_errors,
    structural_verdicts,
)
from lodekit.learning.searches.search import UNKNOWN_AHEAD
from lodekit.wording import join_words

__all__ = ["Diagnosis", "diagnose", "plain_values"]

#: How many nats below smooth curves a fit must be to have failed, and how many more for each measurement.
_MARGIN, _MARGIN_EACH = 10.5, 0.05
#: So many times the noise that smooth curves leave, and more than this share of the variance of the data.
_CLEARLY, _MATTERS = 3.0, 0.2
#: Residuals so many times as large as known noise say that the fit has missed the data, or that the noise is not known.
_LOUD = 10.0
#: Of fewer measurements than this, smooth curves explain everything.
_FEW = 5
#: Reasons that lie in the equations and in what is measured: no other record helps.
_OF_EQUATIONS = ("structure", "size")
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
    rivals : tuple of Rival
        Other values of the parameters that fit about as well.
    """

    trouble: tuple[str, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    combinations: tuple[str, ...] = ()
    symmetries: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    advantage: float = math.nan
    widening: Mapping[str, float] = field(default_factory=dict)
    rivals: tuple[Rival, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the search has failed."""
        return bool(self.trouble)

    @property
    def is_short_of_data(self) -> bool:
        """Whether parameters are left open that the equations do not leave open: other data could tell them."""
        return any(not each.identified and each.reason not in _OF_EQUATIONS for each in self.verdicts.values())

    @property
    def explained(self) -> dict[str, float]:
        """The share of the variance of each observable that the curves explain; none for what does not change.

        Of several records that which is explained least counts.
        """
        found: dict[str, float] = {}
        for check in self.checks:
            if not math.isnan(check.explained):
                # Minus zero becomes zero.
                found[check.name] = min(found.get(check.name, math.inf), check.explained + 0.0)
        return found

    @property
    def notes(self) -> list[str]:
        """What is worth knowing and no reason to worry."""
        return [
            f"the data do not tell the sign{'s' * (len(names) > 1)} of {join_words(names)}: "
            f"{'all of them' if len(names) > 2 else 'both' if len(names) == 2 else 'it'} can change"
            f"{' together' * (len(names) > 1)}; reported is what has the most positive values. Where signs are known, "
            "declare them: positive = true"
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
            "verdicts": {name: plain_values(asdict(verdict)) for name, verdict in self.verdicts.items()},
            "combinations": list(self.combinations),
            "symmetries": [list(names) for names in self.symmetries],
            "checks": [plain_values(asdict(check)) for check in self.checks],
            "advantage": plain_values(self.advantage),
            "widening": dict(self.widening),
            "rivals": [asdict(rival) for rival in self.rivals],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Diagnosis:
        """Return what `to_dict` has taken apart."""
        advantage = state["advantage"]
        return cls(
            tuple(state["trouble"]),
            {name: Verdict.from_dict(each) for name, each in state["verdicts"].items()},
            tuple(state["combinations"]),
            tuple(tuple(names) for names in state["symmetries"]),
            tuple(_read_check(check) for check in state["checks"]),
            math.nan if advantage is None else float(advantage),
            dict(state.get("widening", {})),
            tuple(Rival.from_dict(each) for each in state.get("rivals", ())),
        )


def _read_check(state: Mapping[str, Any]) -> Check:
    """Return a check that was taken apart; older files tell less of it."""
    found: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
    own = found.pop("whiteness", None)
    found["outliers"] = tuple((float(time), float(far)) for time, far in found.get("outliers", ()))
    found["white"] = tuple(found.get("white", ()))
    return Check(**found, whiteness=Whiteness.from_dict(own) if isinstance(own, Mapping) else None)


def plain_values(value: Any) -> Any:
    """Return values that JSON can hold: lists for tuples, None for what is not finite; dicts and lists are followed."""
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def diagnose(
    examined: Examined, structure: Structure | None = None, verdicts: Mapping[str, Verdict] | None = None
) -> Diagnosis:
    """Return the diagnosis of a fit.

    Parameters
    ----------
    examined : Examined
    structure : Structure, optional
        What the equations say; None where nothing was searched for, and only residuals are looked at.
    verdicts : dict of str to Verdict, optional
        What is known already about parameters, where nothing was searched for.
    """
    with np.errstate(all="ignore"):
        checks = examined.checks()
        if structure is None:
            return Diagnosis(verdicts=dict(verdicts or {}), checks=checks)
        advantage, poor = _compare_records(examined, checks)
        trouble = [*_unsettled(examined), *poor]
        rivals: tuple[Rival, ...] = ()
        if poor:
            errors = relative_errors(examined.objective, examined.optimum, examined.curvature)
            # Where a search ended in a poor place, what is flat there says nothing about the data.
            loud = any(check.size > _LOUD for check in checks)
            lost = [name for name, error in errors.items() if loud or not 0.0 < error < _LOST]
            found = {name: Verdict(False, "unknown, the search failed", "failed") for name in lost}
            found |= structural_verdicts(structure)
        else:
            known = examined.objective, examined.optimum, examined.curvature
            # As intervals are widened where free functions do not take up what is left.
            factors = [check.inflation for check in checks if check.has_memory and examined.prior.processes]
            found = give_verdicts(structure, examined.curves, *known, max(factors, default=1.0))
            rivals = find_rivals(*known, examined.times, structure)
            found |= compare_rivals(*known, rivals, found)
            unresolved = parameters_between(examined.system, examined.measurements.names) if examined.is_exact else ()
            found |= {name: Verdict(False, NOT_IDENTIFIED, "unresolved") for name in unresolved if name not in found}
    symmetries = tuple(tuple(n for n in structure.system.parameters if n in s) for s in structure.symmetries)
    return Diagnosis(tuple(trouble), found, tuple(structure.combinations), symmetries, checks, advantage, rivals=rivals)


def _unsettled(examined: Examined) -> list[str]:
    """Return whether the search has not come to an end, in sentences."""
    optimum, layout = examined.optimum, examined.objective.layout
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


def _compare_records(examined: Examined, checks: Sequence[Check]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, over all records, and which are clearly worse."""
    if not examined.parts:
        return _compare(examined, checks)
    advantages, found = [], []
    for name, part in examined.parts.items():
        advantage, poor = _compare(part, [check for check in checks if check.record == name])
        advantages.append(advantage)
        found += [f"record {name}: {text}" for text in poor]
    known = [each for each in advantages if not math.isnan(each)]
    return sum(known) if known else math.nan, found


def _compare(examined: Examined, checks: Sequence[Check]) -> tuple[float, list[str]]:
    """Return by how much the fit is better than smooth curves, and what follows where it is clearly worse."""
    kept = examined.measurements
    # Where curves explain the data, no yardstick is needed.
    if kept.sums is not None or not any(1.0 - each.explained > _MATTERS or each.size > _LOUD for each in checks):
        return math.nan, []
    runs = take_runs(kept)
    yardstick = measure_yardstick(runs.series, examined.prior.noise.of_some(runs.names), examined.prior.units.span)
    if yardstick is None:
        return math.nan, []
    own = examined.posterior.value if runs is kept else examined.evidence_on(runs)
    advantage = own - yardstick.log_evidence
    poor = _poorer(checks, yardstick, {each.observable: each.spread for each in kept.summaries})
    # What was chosen for a yardstick makes it look a little better than it is.
    if not poor or not advantage < -(_MARGIN + _MARGIN_EACH * yardstick.size):
        return advantage, []
    return advantage, [
        "the search ended in a poor place, or the equations do not describe these data"
        f"{', or their noise is larger than was said' if any(each.size > _LOUD for each in checks) else ''}: "
        f"smooth curves that obey no equation are more likely by {-advantage:.0f} nats, and leave less of "
        f"{join_words(poor)} to the noise; try start values, bounds or more restarts, and check the equations, the "
        "units and the data"
    ]


def _poorer(checks: Sequence[Check], yardstick: Yardstick, spreads: Mapping[str, float]) -> list[str]:
    """Return observables of which smooth curves explain clearly more, each with both shares."""
    found = []
    for check in checks:
        if math.isnan(check.explained) or check.count < _FEW:
            continue
        left = 1.0 - check.explained
        # The size of the noise in units of the spread of the data.
        share = (yardstick.noise[check.name] / spreads[check.name]) ** 2
        if check.size > _LOUD or (left > _CLEARLY * share and left > _MATTERS):
            both = max(1.0 - share, 0.0), max(check.explained, 0.0)
            found.append(f"{check.name} ({both[0]:.0%} against {both[1]:.0%} explained)")
    return found
