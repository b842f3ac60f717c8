"""Observables as a stream sees them: rows for its states, and what is known beside these, in the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.states import Space
from lodekit.online.known import Plant, Samples
from lodekit.prior.compile import Coefficients
from lodekit.prior.means import CompiledSignal
from lodekit.prior.observables import Observables

__all__ = ["Readings"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Readings:
    """Observables at the learned parameters.

    Parameters
    ----------
    rows : array, shape (o, s)
        For the states.
    response, direct, slopes : arrays, shapes (o, q), (o, m) and (o, m)
        For the states of the response to known inputs, for these inputs, and for their derivatives.
    plant : Plant or None
    observables : Observables
    coefficients : Coefficients
    """

    rows: Array
    response: Array
    direct: Array
    slopes: Array
    plant: Plant | None
    observables: Observables
    coefficients: Coefficients

    @classmethod
    def of(cls, fit: Fit, space: Space, plant: Plant | None, texts: Sequence[str]) -> Self:
        """Return observables from their texts.

        Parameters
        ----------
        fit : Fit
        space : Space
        plant : Plant or None
        texts : sequence of str
        """
        observables = fit.observables(texts)
        if observables.intervals is not None:
            raise LodekitError("a stream has no means or totals over intervals; ask for the observable itself")
        values = observables.evaluate(fit.hyperparameters.theta)
        rows = np.ascontiguousarray(space.readings_of(observables, values))
        none = np.zeros((len(texts), 0))
        if plant is None or observables.driven is None or values.driven is None:
            return cls(rows, none, none, none, None, observables, values)
        own = observables.driven.drive.matrices(values.driven)[0]
        return cls(rows, own.H * plant.scales, own.D, own.D1, plant, observables, values)

    def check_measured(self, names: Sequence[str]) -> None:
        """Raise where a measurement depends on the slope of an input that only the next row will tell.

        Parameters
        ----------
        names : sequence of str
            The texts of the observables.
        """
        if self.plant is None:
            return
        for column, (name, delay) in enumerate(zip(self.plant.inputs, self.plant.delays, strict=True)):
            rows = np.flatnonzero(self.slopes[:, column])
            if len(rows) and self.plant.kinds[name] == "linear" and delay == 0:
                raise LodekitError(
                    f"{names[rows[0]]} depends on the derivative of the linear input {name}, which is known one row "
                    "later only; expected inputs that are held, or another observable"
                )

    @cached_property
    def _functions(self) -> list[tuple[int, CompiledSignal]]:
        """The known functions of time, and of which observables they are."""
        return [(k, signal) for k, signal in enumerate(self.observables.compiled.signals) if signal.count]

    def known(self, response: Array, samples: Mapping[str, Samples], time: float) -> Array | None:
        """Return all that is known beside the states, shape (o,); None where nothing is.

        Parameters
        ----------
        response : array, shape (q,)
            The states of the response to known inputs.
        samples : dict of str to Samples
        time : float
        """
        if self.plant is None and not self._functions:
            return None
        found = np.zeros(len(self.rows))
        if self.plant is not None:
            values, slopes = self.plant.feed(samples, time)
            found = self.response @ response + self.direct @ values
            if self._is_sloped:
                found += self.slopes @ slopes
        table = self.coefficients.table[0], self.coefficients.table[1][:0]
        for number, signal in self._functions:
            found[number] += float(signal.evaluate(np.array([time]), *table)[0][0])
        return found

    @cached_property
    def _is_sloped(self) -> bool:
        return bool(self.slopes.any())
