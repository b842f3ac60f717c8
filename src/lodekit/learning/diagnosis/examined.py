"""All that a diagnosis looks at: a fit with its measurements, and what it leaves of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements, Summary
from lodekit.data.observations import Series
from lodekit.data.records import padded
from lodekit.inference.engine import Posterior
from lodekit.inference.innovations import is_filtered, runs_of, take_turns
from lodekit.inference.markov.piecewise import PiecesPosterior
from lodekit.inference.markov.posterior import MarkovPosterior
from lodekit.inference.markov.turns import MarkovTurns
from lodekit.inference.turns import Turns
from lodekit.learning.diagnosis.remainder import Innovations, Remainder, find_remainder
from lodekit.learning.diagnosis.residuals import Check, check_residuals
from lodekit.learning.diagnosis.resolution import is_unresolved
from lodekit.learning.diagnosis.whiteness import LEVEL
from lodekit.learning.identifiability.motion import Curves
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum
from lodekit.prior.disturbed import WHITE
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import Prior
from lodekit.system.system import System

__all__ = ["Examined"]

#: Less noise than this share of the spread of the data is none.
_EXACT = 1e-5


@dataclass(frozen=True)
class Examined:
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
    engine : str
        The name of the engine.
    parts : dict of str to Examined
        The same of each of several records, by name; empty where there is one.
    last : MarkovPosterior, optional
        Where the measurements are the last piece of a record on disk: the posterior there.
    """

    system: System
    objective: Objective
    optimum: Optimum
    curvature: NDArray[np.float64]
    posterior: Posterior
    measurements: Measurements
    level: Callable[[str], float]
    evidence_on: Callable[[Measurements], float]
    engine: str
    parts: Mapping[str, Examined] = field(default_factory=dict)
    last: MarkovPosterior | None = None

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

    @property
    def times(self) -> list[NDArray[np.float64]]:
        """All times of each record; none where they are not in memory."""
        if self.parts:
            return [times for part in self.parts.values() for times in part.times]
        series = self.measurements.series
        return [np.concatenate([item.times for item in series])] if series else []

    @property
    def is_exact(self) -> bool:
        """Whether next to nothing is left to noise, and the measurements do not tell what is between them."""
        if any(self.level(each.observable) > _EXACT * each.spread for each in self.measurements.summaries):
            return False
        scaled = self.objective.layout.unpack(self.optimum.x).lengthscales
        lengthscales = np.array([self.prior.units.user_lengths(float(each)) for each in scaled])
        return is_unresolved(lengthscales, self.times)

    def checks(self) -> tuple[Check, ...]:
        """Return what the residuals say; of sums over measurements only the share of the variance is known.

        Of rows on disk the last ones are looked at.
        """
        if self.parts:
            found = ((name, part.checks()) for name, part in self.parts.items())
            return tuple(replace(check, record=name) for name, checks in found for check in checks)
        if self.measurements.sums is not None:
            last = self.last_piece
            known = {} if last is None else {check.name: check for check in last.checks()}
            return tuple(self._summed(each, known.get(each.observable)) for each in self.measurements.summaries)
        series, inputs = self.measurements.series, self.measurements.inputs
        checks = (
            check_residuals(item, self.remainder(item), self.level(item.observable), inputs, LEVEL / len(series))
            for item in series
        )
        return tuple(replace(check, white=self.white) for check in checks)

    @property
    def white(self) -> tuple[str, ...]:
        """Disturbances of white noise, without those that are best at zero."""
        own, start = self.prior.observables.disturbed, self.objective.layout.blocks.disturbance_deviations.start
        if own is None:
            return ()
        both = enumerate(zip(own.names, own.kinds, strict=True))
        return tuple(name for n, (name, kind) in both if kind == WHITE and not self.optimum.at_bound[start + n])

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
            reader = ObservableReader(self.system, self.measurements.inputs, self.prior.disturbances)
            compiled = reader.compile_plain([item.observable], self.prior.units)
            return self.posterior.mean(compiled, times)[:, 0]

        return find_remainder(item, mean, self.level(item.observable), self.innovations)

    @cached_property
    def innovations(self) -> Innovations | None:
        """What measurements add to those before them; from a matrix, in a few runs of neighbours where there are many.

        None without free functions, where a matrix has exact measurements, or where rounding hides it.
        """
        whole = is_filtered(self.engine, self.prior)
        if not self.prior.is_random or (self.measurements.has_exact_values and not whole):
            return None
        hyper = self.objective.layout.unpack(self.optimum.x)
        every = padded(self.measurements, self.prior.noise.observables).series
        times: dict[str, list[NDArray[np.float64]]] = {item.observable: [] for item in every}
        values: dict[str, list[NDArray[np.float64]]] = {item.observable: [] for item in every}
        left: dict[str, float] = {}
        typical: dict[str, float] = {}
        for run in [every] if whole else runs_of(every):
            if self.last is not None:
                turns: Turns | None = MarkovTurns(self.last.data, self.last.solved)
            else:
                turns = take_turns(self.engine, self.prior, run, hyper)
            if turns is None:
                return None
            errors = turns.innovations * turns.deviations
            for number, item in enumerate(run):
                own = turns.observables == number
                # Exact ones are what they are, and no example of noise.
                times[item.observable].append(item.times[~item.exact])
                values[item.observable].append(turns.innovations[own][~item.exact])
                if self.prior.disturbances and len(item.times):
                    left[item.observable] = float(np.mean(errors[own] ** 2))
                    typical[item.observable] = float(np.median(turns.deviations[own]))
        if not any(values.values()):
            return None
        joined, own_times = ({name: np.concatenate(parts) for name, parts in each.items()} for each in (values, times))
        return Innovations(own_times, joined, left, typical)

    @property
    def looked_at(self) -> list[Series]:
        """The measurements whose residuals are looked at: all in memory, the last ones of rows on disk."""
        if not isinstance(self.posterior, PiecesPosterior):
            return list(self.measurements.series)
        pieces = self.posterior.engine
        return [item for item in pieces.series(len(pieces.starts) - 1) if len(item.times)]

    @property
    def last_piece(self) -> Examined | None:
        """The same of the last piece of rows on disk; None where there are none."""
        if not isinstance(self.posterior, PiecesPosterior):
            return None
        kept = Measurements(self.looked_at, inputs=self.measurements.inputs)
        return replace(self, measurements=kept, last=self.posterior.piece(len(self.posterior.engine.starts) - 1))

    def prediction_errors(self) -> dict[str, float]:
        """Return the deviation of a prediction from all rows before, by observable; of noise, where that is all."""
        own = self.last_piece or self
        found = own.innovations if self.prior.disturbances and own.measurements.series else None
        typical = {} if found is None else found.typical
        return {name: typical.get(name, self.level(name)) for name in self.measurements.names}

    @property
    def allowance(self) -> float:
        """How much less open modes of one record cost than what stands for infinity."""
        layout = self.objective.layout
        if layout.open_modes is None:
            return 0.0
        errors = np.array(list(self.prediction_errors().values())) / self.prior.units.scales
        return layout.open_modes.allowance(layout.unpack(self.optimum.x).theta, errors)

    def _summed(self, item: Summary, last: Check | None) -> Check:
        level = self.level(item.observable)
        explained = 1.0 - (level / item.spread) ** 2 if item.spread > 0 else math.nan
        if last is not None:
            # What few rows show of an observable is no share of what all of them do.
            return replace(last, count=item.count, explained=explained, expected=math.nan, predicted=math.nan)
        return Check(item.observable, item.count, 0, 1.0, 0.0, explained)
