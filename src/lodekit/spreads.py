"""How large errors of predictions ahead were in the record of a fit, and what follows for those to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

    def factors(self, turns: Turns, observable: int) -> Array:
        """Return factors of the deviations of predictions, for all rows of an observable in their turn.

        Parameters
        ----------
        turns : Turns
        observable : int
            Its number.
        """
        return self.spread.factors(_sizes(self.unsteadiness, self.lead, turns, observable))


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
    runs = [run for part in fit.parts for run in _turns(part)]
    found: dict[str, list[Band]] = {}
    for name in names:
        own = [(turns, order.index(name)) for turns, order in runs if name in order]
        times = [turns.times[turns.observables == number] for turns, number in own]
        unsteadiness = find_unsteadiness(times, [_innovations(turns, number) for turns, number in own])
        found[name] = []
        for lead in leads:
            # Variances are larger by what learning has used up of the measurements, here as elsewhere.
            errors = [_relative(turns, number, lead) * np.sqrt(fit.share_left) for turns, number in own]
            sizes = [_sizes(unsteadiness, lead, turns, number) for turns, number in own]
            spread = find_spread(np.concatenate(errors), np.concatenate(sizes)) if own else AS_SAID
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

    def answer(hyper: Hyperparameters) -> Array | None:
        own = again(hyper)
        return None if own is None else np.concatenate([errors for errors, _ in errors_of(own)])

    moves = np.sum(uncertainty.moves_of(answer) ** 2, axis=0)
    edges = np.cumsum([len(errors) for errors, _ in found])[:-1]
    parts = np.split(moves, edges) if moves.ndim else [np.zeros(1)] * len(found)
    return [
        (errors, np.sqrt((band.factors(turns, number) * deviations) ** 2 / share_left + moved))
        for (errors, deviations), (number, band), moved in zip(found, wanted, parts, strict=True)
    ]


def _turns(fit: Fit) -> list[tuple[Turns, list[str]]]:
    """Return measurements of a record in their turn, or a few runs of them, with the names of observables."""
    if fit.measurements.is_summed:
        return []
    every = padded(fit.measurements, fit.prior.noise.observables).series
    order = [item.observable for item in every]
    engine = fit.choice.name
    runs = [every] if is_filtered(engine, fit.prior) else runs_of(every)
    found = (take_turns(engine, fit.prior, run, fit.hyperparameters) for run in runs)
    return [(turns, order) for turns in found if turns is not None]


def _innovations(turns: Turns, observable: int) -> Array:
    """Return innovations of an observable, those of exact values and of the first rows as if nothing had been seen."""
    found = turns.innovations[turns.observables == observable]
    found = np.where(np.isfinite(found), found, 0.0)
    found[:FIRST] = np.clip(found[:FIRST], -1.0, 1.0)
    return found


def _relative(turns: Turns, observable: int, lead: Lead) -> Array:
    """Return errors of predictions over their deviations; NaN where too little was known."""
    errors, deviations = errors_ahead(turns, observable, lead)
    times = turns.times[turns.observables == observable]
    told = (lead.known(times, times) > FIRST) & (deviations > 0.0)
    return np.where(told, errors / np.where(told, deviations, 1.0), np.nan)


def _sizes(unsteadiness: Unsteadiness, lead: Lead, turns: Turns, observable: int) -> Array:
    """Return mean squares of innovations when rows of an observable were predicted, shape (n,)."""
    times = turns.times[turns.observables == observable]
    after = np.append(unsteadiness.follow(times, _innovations(turns, observable)), 1.0)
    return after[lead.known(times, times) - 1]
