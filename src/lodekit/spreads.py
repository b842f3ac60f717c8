"""How large errors of predictions ahead were in the record of a fit, and what follows for those to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import padded
from lodekit.fitted import Fit
from lodekit.inference.innovations import is_filtered, runs_of, take_turns
from lodekit.inference.turns import Lead, Turns, errors_ahead
from lodekit.learning.bands.uncertainty import Uncertainty
from lodekit.learning.bands.unsteadiness import AS_SAID, STEADY, Spread, Unsteadiness, find_spread, find_unsteadiness
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["FIRST", "Band", "find_bands", "predict_within"]

Array = NDArray[np.float64]
#: So many rows tell the initial state; before that nothing can be predicted.
FIRST = 10
#: So many measurements tell parameters so well that what is unknown of them does nothing to fitted errors.
_MANY = 20_000


@dataclass(frozen=True)
class Band:
    """How deviations of predictions of one observable, so far ahead, follow the errors before.

    Parameters
    ----------
    lead : Lead
        How far ahead.
    unsteadiness : Unsteadiness
        How the size of its innovations changes.
    spread : Spread
        What is left of that so far ahead, and how far errors reach.
    """

    lead: Lead
    unsteadiness: Unsteadiness = STEADY
    spread: Spread = AS_SAID

    def deviations(self, turns: Turns, observable: int, variances: Array, moved: Array) -> Array:
        """Return deviations of predictions, for all rows of an observable in their turn.

        Parameters
        ----------
        turns : Turns
        observable : int
            Its number.
        variances : array, shape (n,)
            As the model at the learned values has them.
        moved : array, shape (n,)
            What is unknown of the parameters adds to these.
        """
        return self.spread.deviations(_sizes(self.unsteadiness, self.lead, turns, observable), variances, moved)


def find_bands(fit: Fit, names: Sequence[str], leads: Sequence[Lead]) -> dict[str, list[Band]]:
    """Return what errors of the record, or records, of a fit say of predictions ahead, by observable.

    Parameters
    ----------
    fit : Fit
    names : sequence of str
        Observables; of those that were not measured nothing is known.
    leads : sequence of Lead
        How far ahead.
    """
    runs = [run for part in fit.parts for run in _runs(part)]
    found: dict[str, list[Band]] = {}
    for name in names:
        own = [(run, run.order.index(name)) for run in runs if name in run.order]
        times = [run.times(number) for run, number in own]
        unsteadiness = find_unsteadiness(times, [_innovations(run.turns, number) for run, number in own])
        taken = [run.relative(number, leads, fit.share_left) for run, number in own]
        found[name] = []
        for place, lead in enumerate(leads):
            sizes = [_sizes(unsteadiness, lead, run.turns, number) for run, number in own]
            errors, moved = ([each[place][part] for each in taken] for part in (0, 1))
            spread = find_spread(errors, sizes, moved, max((_rows_ahead(lead, each) for each in times), default=1))
            found[name].append(Band(lead, unsteadiness, spread))
    return found


def predict_within(
    uncertainty: Uncertainty | None,
    turns: Turns,
    again: Callable[[Hyperparameters], Turns | None],
    wanted: Sequence[tuple[int, Band]],
    share_left: float = 1.0,
    first: int = 0,
) -> list[tuple[Array, Array]]:
    """Return measurements minus predictions ahead, and deviations of these, for observables and bands.

    Parameters
    ----------
    uncertainty : Uncertainty, optional
        Of all that was learned; without it deviations are those of the model.
    turns : Turns
        Measurements in their turn at the learned values.
    again : function
        From other values to the same.
    wanted : sequence of (int, Band)
        Numbers of observables, and how far ahead.
    share_left : float
        The share of the measurements that learning has not used up.
    first : int
        How many measurements come before all others, and are known in any case.
    """

    def errors_of(own: Turns) -> list[tuple[Array, Array]]:
        return [errors_ahead(own, number, band.lead, first) for number, band in wanted]

    found = errors_of(turns)
    if uncertainty is None:
        return found

    sizes = [len(errors) for errors, _ in found]
    parts = _moved(uncertainty, again, [(number, band.lead) for number, band in wanted], sizes, first)
    return [
        (errors, band.deviations(turns, number, deviations**2 / share_left, moved))
        for (errors, deviations), (number, band), moved in zip(found, wanted, parts, strict=True)
    ]


def _moved(
    uncertainty: Uncertainty,
    again: Callable[[Hyperparameters], Turns | None],
    wanted: Sequence[tuple[int, Lead]],
    sizes: Sequence[int],
    first: int = 0,
) -> list[Array]:
    """Return variances that what is unknown of all that was learned adds to errors, for observables and leads."""

    def answer(hyper: Hyperparameters) -> Array | None:
        own = again(hyper)
        if own is None:
            return None
        return np.concatenate([errors_ahead(own, number, lead, first)[0] for number, lead in wanted])

    moves = np.sum(uncertainty.moves_of(answer) ** 2, axis=0)
    return np.split(moves, np.cumsum(sizes)[:-1]) if moves.ndim else [np.zeros(size) for size in sizes]


@dataclass(frozen=True, eq=False)
class _Run:
    """Measurements of a fitted record in their turn, or of a run of it.

    Parameters
    ----------
    turns : Turns
        At the learned values.
    order : list of str
        The names of observables.
    again : function
        From other values to the same.
    uncertainty : Uncertainty, optional
        Of all that was learned, where it matters.
    """

    turns: Turns
    order: list[str]
    again: Callable[[Hyperparameters], Turns | None]
    uncertainty: Uncertainty | None

    def times(self, observable: int) -> Array:
        """Return when an observable was measured, shape (n,)."""
        return np.asarray(self.turns.times[self.turns.observables == observable])

    def relative(self, observable: int, leads: Sequence[Lead], share_left: float) -> list[tuple[Array, Array]]:
        """Return errors of predictions over their deviations, NaN where too little was known, for each lead.

        And variances that what is unknown of the parameters adds to errors of another record, in the same unit.
        """
        times = self.times(observable)
        parts = [np.zeros(len(times)) for _ in leads]
        if self.uncertainty is not None:
            wanted = [(observable, lead) for lead in leads]
            parts = _moved(self.uncertainty, self.again, wanted, [len(times)] * len(leads))
        found = []
        for lead, moved in zip(leads, parts, strict=True):
            errors, deviations = errors_ahead(self.turns, observable, lead)
            told = (lead.known(times, times) > FIRST) & (deviations > 0.0)
            # Variances are larger by what learning has used up of the measurements, here as elsewhere.
            wide = np.where(told, deviations, 1.0) / np.sqrt(share_left)
            found.append((np.where(told, errors / wide, np.nan), moved / wide**2))
        return found


def _runs(fit: Fit) -> list[_Run]:
    """Return measurements of a record in their turn, or a few runs of them."""
    if fit.measurements.is_summed:
        return []
    every = padded(fit.measurements, fit.prior.noise.observables).series
    order = [item.observable for item in every]
    engine = fit.choice.name
    # Rivals were not fitted to anything: they have taken nothing from errors.
    uncertainty = replace(fit.uncertainty, rivals=()) if fit.measurements.size <= _MANY else None
    found = []
    for run in [every] if is_filtered(engine, fit.prior) else runs_of(every):
        again = partial(take_turns, engine, fit.prior, run)
        turns = again(fit.hyperparameters)
        if turns is not None:
            found.append(_Run(turns, order, again, uncertainty))
    return found


def _innovations(turns: Turns, observable: int) -> Array:
    """Return innovations of an observable, those of exact values and of the first rows as if nothing had been seen."""
    found = turns.innovations[turns.observables == observable]
    found = np.where(np.isfinite(found), found, 0.0)
    found[:FIRST] = np.clip(found[:FIRST], -1.0, 1.0)
    return found


def _rows_ahead(lead: Lead, times: Array) -> int:
    """Return how many rows of an observable that was measured at these times predictions look ahead, typically."""
    if not len(times):
        return 1
    return max(1, int(np.median(np.arange(len(times)) - lead.known(times, times))) + 1)


def _sizes(unsteadiness: Unsteadiness, lead: Lead, turns: Turns, observable: int) -> Array:
    """Return mean squares of innovations when rows of an observable were predicted, shape (n,)."""
    times = turns.times[turns.observables == observable]
    after = np.append(unsteadiness.follow(times, _innovations(turns, observable)), 1.0)
    return after[lead.known(times, times) - 1]
