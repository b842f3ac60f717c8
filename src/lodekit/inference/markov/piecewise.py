"""The posterior of records that are larger than memory: pieces in which something is asked for are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.spool import LeftOut
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.markov.between import Border
from lodekit.inference.markov.evaluation import Solved
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.markov.posterior import MarkovPosterior
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["Pieces", "PiecesPosterior"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So many functions are drawn at the same time.
_DRAWS = 8


class Pieces(Protocol):
    """A record in pieces."""

    @property
    def starts(self) -> Array:
        """The time of the first row of each piece, in the user's unit."""

    @property
    def left_out(self) -> LeftOut | None:
        """What is known of rows before the first one; None where there were none."""

    @property
    def length(self) -> int | None:
        """How many measurements a block has, where it matters."""

    def series(self, number: int) -> list[Series]:
        """Return the measurements in a piece of the record."""

    def piece(self, number: int) -> MarkovData:
        """Return a piece of the record."""

    def solve(self, data: MarkovData, hyper: Hyperparameters, border: Border, *, keep: bool = False) -> Solved | None:
        """Return a piece with its log evidence; None where something is not finite.

        Parameters
        ----------
        data : MarkovData
            The piece.
        hyper : Hyperparameters
        border : Border
            What is said at both ends.
        keep : bool
            Whether the gradient is asked for as well.
        """


@dataclass(frozen=True)
class PiecesPosterior:
    """The posterior of rows on disk; pieces in which something is asked for are read again.

    Parameters
    ----------
    engine : Pieces
    hyper : Hyperparameters
    borders : tuple of Border
        What is said at both ends of each piece.
    value, error : float
        The log evidence in the user's units, and about how large an error rounding makes in it.
    """

    engine: Pieces
    hyper: Hyperparameters
    borders: tuple[Border, ...]
    value: float
    error: float
    _kept: dict[int, MarkovPosterior] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: states do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met, in any piece."""
        for number in range(len(self.borders)):
            if self.engine.piece(number).noise.exact.any():
                self.piece(number).check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._ask(observables, times, lambda own, some: own.mean(observables, some))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._ask(observables, times, lambda own, some: own.variance(observables, some))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o).

        Times have to be in one piece of the record.
        """
        numbers = np.unique(self._numbers(observables, times))
        if len(numbers) > 1:
            _refuse("covariances of times that are far apart")
        count = observables.count
        if not len(numbers):
            return np.zeros((0, count, 0, count))
        return self.piece(int(numbers[0])).covariance(observables, times)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Draws from the prior go through all pieces; on the way back each piece makes its own again, to correct them.

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        numbers = self._numbers(observables, times)
        found = np.zeros((size, len(times), observables.count))
        for first in range(0, size, _DRAWS):
            count = min(_DRAWS, size - first)
            for own, drawn in self._draw(observables, times, numbers, generator.integers(1 << 62, size=2), count):
                found[first : first + count, own] = drawn
        return found

    def _draw(
        self, observables: Observables, times: Array, numbers: Numbers, seed: Numbers, count: int
    ) -> Iterator[tuple[Numbers, Array]]:
        """Yield which times are in a piece, and draws there, shape (k, a, o), from the last piece to the first."""
        # The state of each draw at the start of a piece, and the mean of what corrects it.
        starts: list[tuple[Array | None, Array | None]] = [(None, None)]
        score = None
        last = len(self.borders) - 1
        there, back = ((number, True) for number in range(last)), ((number, False) for number in range(last, -1, -1))
        for number, is_ahead in (*there, *back):
            own = np.flatnonzero(numbers == number)
            piece, (state, mean) = self.piece(number), starts[number]
            look, rows = piece.look_at_once(observables, times[own])
            # The same numbers on the way there and back.
            generator = np.random.default_rng([*seed.tolist(), number])
            seen, states, end = look.draw(count, generator, state)
            variance = piece.data.noise.variance(self.hyper.noise)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            y, smoothed = look.smooth(piece.solved.residual[:, None] - seen - noise, Border(mean=mean, score=score))
            if is_ahead:
                starts.append((end, smoothed.last))
                continue
            score = smoothed.scores[0]
            every = states + look.follow(y, smoothed)
            yield own, piece.combine(observables, times[own], rows, every).transpose(2, 0, 1)

    def _numbers(self, observables: Observables, times: Array) -> Numbers:
        """Return the piece that each time is in."""
        if observables.windows is not None:
            _refuse("means and totals over intervals")
        if self.engine.left_out is not None and len(times) and times.min() < self.engine.starts[0]:
            raise LodekitError(
                f"this model was saved without its rows before t = {self.engine.starts[0]:.6g}, which are too many: "
                "ask for times from there on, or fit again with the file"
            )
        return np.maximum(np.searchsorted(self.engine.starts, times, side="right") - 1, 0)

    def _ask(
        self, observables: Observables, times: Array, question: Callable[[MarkovPosterior, Array], Array]
    ) -> Array:
        found, numbers = np.zeros((len(times), observables.count)), self._numbers(observables, times)
        for number in np.unique(numbers).tolist():
            found[numbers == number] = question(self.piece(number), times[numbers == number])
        return found

    def piece(self, number: int) -> MarkovPosterior:
        """Return the posterior in one piece; the last one is kept.

        Parameters
        ----------
        number : int
        """
        if number not in self._kept:
            data = self.engine.piece(number)
            solved = self.engine.solve(data, self.hyper, self.borders[number])
            if solved is None:
                raise AccuracyError("the states are not finite at these values; check units and starting values")
            self._kept.clear()
            self._kept[number] = MarkovPosterior(data, self.hyper, solved, self.engine.length)
        return self._kept[number]


def _refuse(what: str) -> NoReturn:
    raise LodekitError(
        f"the rows of this fit are on disk, as they are too many for memory, and {what} are not made of them; fit a "
        "piece of the record, or ask for means and deviations at some times"
    )
