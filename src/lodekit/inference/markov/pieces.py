"""Records that are larger than memory: one piece after the other is read, filtered, and forgotten.

Between pieces go what goes between blocks: mean and covariance of the state forward; backward its score, and the
information of all that follows. A gradient takes two passes: the way back solves each piece again, from the state at
its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.spool import Head, LeftOut, Spool
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import Evidence, SearchLimits
from lodekit.inference.markov.between import Border
from lodekit.inference.markov.evaluation import Pulled, Solved, pull_start, residual_of, solve
from lodekit.inference.markov.inside import Total
from lodekit.inference.markov.layout import MarkovData, shorter_length
from lodekit.inference.markov.piecewise import PiecesPosterior
from lodekit.inference.measured import SOME_TIMES, mode_powers
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior
from lodekit.prior.relayed import Relay

__all__ = ["PIECE", "PiecesEngine"]

Array = NDArray[np.float64]
#: Rows that are in memory at the same time; irregular ones take about a kilobyte each.
PIECE = 100_000


@dataclass(frozen=True)
class PiecesEngine:
    """Log evidence and posterior of rows on disk.

    Parameters
    ----------
    prior : Prior
        Of the measured observables.
    spool : Spool
        The rows.
    most : int
        How many of them are a piece.
    left_out : LeftOut, optional
        Where these are the end of longer rows: what is known of those before them.
    """

    prior: Prior
    spool: Spool
    # Asked for when it is made: tests have shorter pieces.
    most: int = field(default_factory=lambda: PIECE)
    left_out: LeftOut | None = None
    _last: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    @property
    def length(self) -> int | None:
        """How many measurements a block has, where it matters."""
        return self._last.get("length")

    @cached_property
    def size(self) -> int:
        """The number of measurements."""
        return int(self._squares[0].sum()) + (self.left_out.size if self.left_out else 0)

    @cached_property
    def starts(self) -> Array:
        """The time of the first row of each piece, in the user's unit."""
        return np.array([self.spool.time(row) for row in range(0, self.spool.count, self.most)])

    @cached_property
    def _relay(self) -> Relay | None:
        """What the response to known inputs hands from piece to piece; None where there are none."""
        driven = self.prior.observables.driven
        if driven is None:
            return None
        if self.left_out is None:
            return Relay(driven.drive, driven.signals, [driven.start, *self.starts[1:].tolist()])
        theta = len(self.prior.observables.compiled.parameters)
        known = [(driven.evaluate(head.point[:theta])[0], head.response) for head in self.left_out.heads]
        return Relay(driven.drive, driven.signals, self.starts.tolist(), partial(_find_response, known))

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate."""
        gap = self.spool.gap / self.prior.units.span
        return SearchLimits(max(0.3 * gap if np.isfinite(gap) else 1e-3, 1e-6))

    @property
    def is_threaded(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def series(self, number: int) -> list[Series]:
        """Return the measurements in a piece of the record, one series for each observable of the prior.

        Parameters
        ----------
        number : int
        """
        known = {item.observable: item for item in self.spool.read(number * self.most, (number + 1) * self.most)}
        names, nothing = self.prior.noise.observables, np.zeros(0)
        return [known.get(name, Series(name, nothing, nothing, nothing)) for name in names]

    def piece(self, number: int) -> MarkovData:
        """Return a piece of the record, read from disk.

        Parameters
        ----------
        number : int
        """
        series, prior = self.series(number), self.prior
        if self._relay is not None:
            prior = replace(prior, observables=replace(prior.observables, driven=self._relay.piece(number)))
        data = MarkovData.of(prior, series)
        after = self.starts[number + 1 : number + 2]
        until = float(self.prior.units.scaled_times(after)[0]) if len(after) else None
        return replace(data, until=until, goes_on=number > 0 or self.left_out is not None)

    def solve(self, data: MarkovData, hyper: Hyperparameters, border: Border, *, keep: bool = False) -> Solved | None:
        """Return a piece with its log evidence, in blocks that are short enough; None where something is not finite.

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
        return solve(data, hyper, data.layout(self.length), border, keep=keep)

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        # A gradient needs all rows.
        found = None if self.left_out is not None else self._forward(hyper)
        if found is None:
            return Evidence.impossible(hyper)
        noise, theta, total, last = np.zeros(len(hyper.noise)), np.zeros(len(hyper.theta)), None, None
        left = len(self.starts)
        for data, solved in self._backward(hyper, found.borders, keep=True):
            total = total or Total(solved.filter.space)
            with np.errstate(all="ignore"):
                pulled = Pulled.of(data, hyper, solved, total)
            noise, theta, last = noise + pulled.noise, theta + pulled.theta, (solved.filter, pulled)
            left -= 1
        if last is None or left:
            return Evidence.impossible(hyper)
        with np.errstate(all="ignore"):
            gradient = pull_start(last[0], replace(last[1], noise=noise, theta=theta))
        if not all(np.isfinite(part).all() for part in gradient.parts):
            return Evidence.impossible(hyper)
        return Evidence(found.value, gradient, found.error)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.appraise(hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        if self.left_out is not None and self._head(hyper) is None:
            return -np.inf, 0.0
        found = self._forward(hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> PiecesPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = self._forward(hyper)
        borders = [solved.filter.border for _, solved in self._backward(hyper, found.borders)] if found else []
        if found is None or len(borders) < len(self.starts):
            raise AccuracyError(
                "the states are not finite at these values, or their covariance is singular to rounding; check units "
                "and starting values, and give exact values a small noise_std"
            )
        return PiecesPosterior(self, hyper, tuple(reversed(borders)), found.value, found.error)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        counts, sums = self._sum_up(coefficients) if self.prior.observables.has_mean else self._squares
        target = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
        ends = self.prior.units.scaled_times(np.array([self.spool.time(0), self.spool.time(self.spool.count - 1)]))
        power = mode_powers(self.prior, coefficients, np.linspace(ends[0], ends[1], SOME_TIMES))
        return np.where(target > 0.0, target, 1.0), power

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return an empty text: states that are not finite have many causes."""
        return ""

    @cached_property
    def _squares(self) -> tuple[Array, Array]:
        return self._sum_up(None)

    def _sum_up(self, coefficients: Coefficients | None) -> tuple[Array, Array]:
        """Return how many measurements each observable has, and the sum of their squares, less what is known."""
        counts, sums = np.zeros((2, self.prior.observables.count))
        for number in range(len(self.starts)):
            data = self.piece(number)
            values = data.values if coefficients is None else residual_of(data, coefficients)
            counts += np.diff(data.edges)
            sums += [float(np.sum(part**2)) for part in np.split(values, data.edges[1:-1])]
        return counts, sums

    def _forward(self, hyper: Hyperparameters) -> _Forward | None:
        """Return the log evidence, and what goes from piece to piece; None where something is not finite."""
        while True:
            found, layout = self._begin(hyper), None
            for number in range(len(self.starts)):
                data = self.piece(number)
                solved = self.solve(data, hyper, found.borders[-1])
                if solved is None:
                    return None
                found.value, found.error = found.value + solved.value, found.error + solved.error
                layout = solved.filter.layout
                found.borders.append(Border(solved.filter.carried.last, solved.smoothed.last))
            length = None if layout is None else shorter_length(layout, self.size, found.value, found.error)
            if length is None:
                return found
            self._last["length"] = length

    def _head(self, hyper: Hyperparameters) -> Head | None:
        """Return what rows that were left out say; None where nobody has kept that."""
        heads, point = self.left_out.heads if self.left_out else (), np.concatenate(hyper.parts)
        return next((head for head in heads if _is_same(head.point, point)), None)

    def _begin(self, hyper: Hyperparameters) -> _Forward:
        """Return what is known before the first row."""
        if self.left_out is None:
            return _Forward()
        head = self._head(hyper)
        if head is None:
            _refuse_others()
        return _Forward(head.value, head.error, [Border(head.root, head.mean)])

    def tail(self, posterior: PiecesPosterior, first: int) -> tuple[float, float, Border, Array]:
        """Return log evidence and error of all pieces before one, what is said at its start, and the response there.

        Parameters
        ----------
        posterior : PiecesPosterior
            Of this engine.
        first : int
            The piece.
        """
        hyper, value, error = posterior.hyper, posterior.value, posterior.error
        for number in range(first, len(self.starts)):
            solved = self.solve(self.piece(number), hyper, posterior.borders[number])
            if solved is not None:
                value, error = value - solved.value, error - solved.error
        response = np.zeros(0)
        if self._relay is not None and self.prior.observables.driven is not None:
            response = self._relay.begin(first, self.prior.observables.driven.evaluate(hyper.theta))
        return value, max(error, 0.0), posterior.borders[first], response

    def _backward(
        self, hyper: Hyperparameters, borders: list[Border], *, keep: bool = False
    ) -> Iterator[tuple[MarkovData, Solved]]:
        """Yield pieces with all that is said at both ends, the last one first, until something is not finite."""
        score = information = later = None
        for number in range(len(self.starts) - 1, -1, -1):
            data, start = self.piece(number), borders[number]
            border = replace(start, score=score, information=information, later=later)
            solved = self.solve(data, hyper, border, keep=keep)
            if solved is None:
                return
            yield data, solved
            score, information = solved.smoothed.scores[0], solved.filter.inform()[0]
            later = None if keep else solved.filter.look_back()[0]


@dataclass
class _Forward:
    """The log evidence with its error, and what goes from piece to piece.

    Parameters
    ----------
    value, error : float
    borders : list of Border
        What is said at the start of each piece, and at the end.
    """

    value: float = 0.0
    error: float = 0.0
    borders: list[Border] = field(default_factory=lambda: [Border()])


def _refuse_others() -> NoReturn:
    raise LodekitError(
        "this model was saved without most of its rows, which are too many, and with them other values of what was "
        "learned cannot be tried; fit again with the file"
    )


def _find_response(known: Sequence[tuple[Array, Array]], table: Array) -> Array:
    """Return the states of the response that were kept for some numbers of its state space."""
    found = next((state for own, state in known if _is_same(own, table)), None)
    if found is None:
        _refuse_others()
    return found


def _is_same(first: Array, second: Array) -> bool:
    """Return whether two points are the same to rounding."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=1e-9, atol=0.0, equal_nan=True))
