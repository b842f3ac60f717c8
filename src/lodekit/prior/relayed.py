"""The response to known inputs in pieces of a record: each goes on with the states that those before it have left.

Forward go the states, backward what the states at the start of a piece are worth to the log evidence, so that the
gradient is that of the whole record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.prior.driven import Drive, Driven
from lodekit.prior.responses.response import Response, ResponsePlan

__all__ = ["Relay", "Relayed"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Relay:
    """What goes from piece to piece of a record.

    Parameters
    ----------
    drive : Drive
        Observables of a state space.
    signals : dict of str to InputSignal
        What drives it, by channel, in the whole record.
    starts : sequence of float
        The start of each piece, in the user's time; states are at rest at the first one.
    first : function, optional
        From the numbers of the state space to the states at the start of the first piece, where rows before it were
        left out.
    """

    drive: Drive
    signals: Mapping[str, InputSignal]
    starts: Sequence[float]
    first: Callable[[Array], Array] | None = None
    #: States at the start of pieces, and what they are worth, at the last values of the parameters.
    _states: dict[int, Array] = field(default_factory=dict, repr=False)
    _worths: dict[int, Array] = field(default_factory=dict, repr=False)
    _last: dict[str, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_states": {}, "_worths": {}, "_last": {}}

    def piece(self, number: int) -> Relayed:
        """Return the observables in one piece.

        Parameters
        ----------
        number : int
        """
        return Relayed(self.drive, self.signals, float(self.starts[number]), relay=self, number=number)

    def until(self, number: int) -> float | None:
        """Return when the piece after one starts; None where there is none.

        Parameters
        ----------
        number : int
        """
        return float(self.starts[number + 1]) if number + 1 < len(self.starts) else None

    def turn_to(self, table: Array) -> None:
        """Forget what was known at other values of the parameters."""
        key = table.tobytes()
        if self._last.get("key") != key:
            self._last["key"] = key
            self._states.clear()
            self._worths.clear()

    def begin(self, number: int, table: tuple[Array, Array]) -> Array:
        """Return the states at the start of a piece; where nobody has been there yet, through those before it.

        Parameters
        ----------
        number : int
        table : (array, array)
            The numbers of the state space and their derivatives.
        """
        self.turn_to(table[0])
        nearest = max((known for known in self._states if known <= number), default=0)
        state = self._states.get(nearest)
        if state is None:
            size = self.drive.shapes["F"][0]
            state = self._states[0] = np.zeros(size) if self.first is None else self.first(table[0])
        for place in range(nearest, number):
            before = self.piece(place)
            state = self._states[place + 1] = before.through(table, np.zeros(0), state)[0].end
        return state

    def leave(self, number: int, state: Array) -> None:
        """Remember the states at the start of a piece.

        Parameters
        ----------
        number : int
        state : array, shape (s,)
        """
        self._states[number] = state

    def worth(self, number: int) -> Array | None:
        """Return what the states at the start of a piece are worth; None beyond the last one.

        Parameters
        ----------
        number : int
        """
        return self._worths[number] if number < len(self.starts) else None

    def appraise(self, number: int, worth: Array) -> None:
        """Remember what the states at the start of a piece are worth.

        Parameters
        ----------
        number : int
        worth : array, shape (s,)
        """
        self._worths[number] = worth


@dataclass(frozen=True)
class Relayed(Driven):
    """Observables in one piece of a record; those of `Driven` in all else.

    Gradients are asked for from the last piece to the first.

    Parameters
    ----------
    drive, signals, start, intervals
        As in `Driven`; it starts where the piece does, and averages over no intervals.
    relay : Relay
    number : int
        Of the piece.
    """

    relay: Relay | None = field(default=None, compare=False, repr=False)
    number: int = 0

    @property
    def _relay(self) -> Relay:
        if self.relay is None:
            raise ValueError("a piece of a record needs what goes from piece to piece")
        return self.relay

    def respond(self, table: tuple[Array, Array], times: Array, *, slopes: bool) -> tuple[Array, Array]:
        """Return the response in the user's units, shape (o, n); derivatives, (o, p, 1), are zero: `pull` has them.

        Parameters
        ----------
        table : (array, array)
            What `evaluate` returns.
        times : array, shape (n,)
            In the user's unit, none after the end of the piece.
        slopes : bool
            Not looked at.
        """
        found, places = self._response(table, times)
        values = found.values[:, : len(times)] if places is None else found.values[:, places]
        return values, np.zeros((len(values), len(table[1]), 1))

    def pull(self, table: tuple[Array, Array], times: Array, weights: Array) -> Array:
        """Return derivatives in the parameters of the sum of weights times the response, and of all that follows.

        Parameters
        ----------
        table, times
            As in `respond`.
        weights : array, shape (o, n)
        """
        found, places = self._response(table, times)
        full = np.zeros((len(weights), len(found.plan.times)))
        if places is None:
            full[:, : len(times)] = weights
        else:
            np.add.at(full.T, places, weights.T)
        slopes, d_delays = self._slopes(table)
        end = self._relay.worth(self.number + 1)
        of_matrices, of_delays, of_start = found.pull_back(full, with_delays=d_delays is not None, end=end)
        self._relay.appraise(self.number, of_start)
        total = of_matrices.contract(slopes)
        return total if d_delays is None else total + d_delays @ of_delays

    def _response(self, table: tuple[Array, Array], times: Array) -> tuple[Response, Places | None]:
        """Return the response at some times and at the end of the piece, and where they stand; the last one is kept."""
        last = self._last.get("response")
        if last is None or last[0] is not table[0] or last[1] is not times:
            found, places = self.through(table, times, self._relay.begin(self.number, table))
            self._relay.leave(self.number + 1, found.end)
            last = self._last["response"] = (table[0], times, found, places)
        return last[2], last[3]

    def through(self, table: tuple[Array, Array], times: Array, begin: Array) -> tuple[Response, Places | None]:
        """Return the response from some states on, at some times and at the end of the piece, and where these stand.

        Parameters
        ----------
        table, times
            As in `respond`.
        begin : array, shape (s,)
            The states at the start of the piece.
        """
        until, places, delays = self._relay.until(self.number), None, self.drive.delays(table)[0]
        asked = times if until is None else np.append(times, until)
        if not (np.diff(asked) > 0).all():
            asked, places = np.unique(asked, return_inverse=True)
            places = places[: len(times)]
        last = float(asked[-1]) if len(asked) else self.start
        # With some room for rounding: one sample more at either end changes nothing.
        first = self.start - float(np.nanmax(delays, initial=0.0))
        room = 1e-9 * (last - first) + 4.0 * float(np.spacing(max(abs(first), abs(last))))
        cut = {name: signal.between(first - room, last + room) for name, signal in self.signals.items()}
        plan = ResponsePlan([cut[name] for name in self.drive.inputs], asked, self.start)
        return plan.respond(self._matrices(table)[0], delays, begin), places
