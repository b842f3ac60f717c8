"""Records that are larger than memory: one piece after the other is read, filtered, and forgotten.

Between pieces go what goes between blocks: mean and covariance of the state forward; backward its score, and the
information of all that follows. A gradient takes two passes: the way back solves each piece again, from the state at
its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.spool import Spool
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import Evidence, SearchLimits
from lodekit.inference.markov.between import Border
from lodekit.inference.markov.evaluation import Pulled, Solved, pull_start, residual_of, solve
from lodekit.inference.markov.inside import Total
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.markov.posterior import MarkovPosterior
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = ["PIECE", "PiecesEngine", "PiecesPosterior"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Rows that are in memory at the same time; irregular ones take about a kilobyte each.
PIECE = 100_000
#: So many times tell how large modes are on average.
_SOME = 400
#: An error of the log evidence, relative to itself or to the number of measurements, for which blocks are cut shorter,
#: and by how much.
_FINE, _SHORTER = 1e-10, 4
#: So many functions are drawn at the same time.
_DRAWS = 8


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
    """

    prior: Prior
    spool: Spool
    most: int = field(default_factory=lambda: PIECE)
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
        return int(self._squares[0].sum())

    @cached_property
    def starts(self) -> Array:
        """The time of the first row of each piece, in the user's unit."""
        return np.array([self.spool.time(row) for row in range(0, self.spool.count, self.most)])

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate."""
        gap = self.spool.gap / self.prior.units.span
        return SearchLimits(max(0.3 * gap if np.isfinite(gap) else 1e-3, 1e-6))

    @property
    def is_threaded(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def piece(self, number: int) -> MarkovData:
        """Return a piece of the record, read from disk.

        Parameters
        ----------
        number : int
        """
        known = {item.observable: item for item in self.spool.read(number * self.most, (number + 1) * self.most)}
        names, nothing = self.prior.noise.observables, np.zeros(0)
        series = [known.get(name, Series(name, nothing, nothing, nothing)) for name in names]
        data = MarkovData.of(self.prior, series)
        after = self.starts[number + 1 : number + 2]
        until = float(self.prior.units.scaled_times(after)[0]) if len(after) else None
        return replace(data, until=until, goes_on=number > 0)

    def solve(self, data: MarkovData, hyper: Hyperparameters, border: Border, *, keep: bool = False) -> Solved | None:
        """Return the log evidence of a piece; None where something is not finite.

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
        found = self._forward(hyper)
        if found is None:
            return Evidence.impossible(hyper)
        noise, theta, total, last = np.zeros(len(hyper.noise)), np.zeros(len(hyper.theta)), None, None
        for data, solved in self._backward(hyper, found.borders, keep=True):
            total = total or Total(solved.filter.space)
            with np.errstate(all="ignore"):
                pulled = Pulled.of(data, hyper, solved, total)
            noise, theta, last = noise + pulled.noise, theta + pulled.theta, (solved.filter, pulled)
        if last is None:
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
        found = self._forward(hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> PiecesPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = self._forward(hyper)
        if found is None:
            raise AccuracyError(
                "the states are not finite at these values, or their covariance is singular to rounding; check units "
                "and starting values, and give exact values a small noise_std"
            )
        borders = [solved.filter.border for _, solved in self._backward(hyper, found.borders)]
        return PiecesPosterior(self, hyper, tuple(reversed(borders)), found.value, found.error)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        observables = self.prior.observables
        counts, sums = self._sum_up(coefficients) if observables.has_mean else self._squares
        target = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
        ends = self.prior.units.scaled_times(np.array([self.spool.time(0), self.spool.time(self.spool.count - 1)]))
        some = np.linspace(ends[0], ends[1], _SOME)
        basis, _ = observables.mode_basis(coefficients, self.prior.groups, some, slopes=False)
        power = np.mean([np.mean(part**2, axis=0) for part in basis], axis=0) if self.prior.groups else np.zeros(0)
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
            found, places, width = _Forward(), 1, 1
            for number in range(len(self.starts)):
                data = self.piece(number)
                solved = self.solve(data, hyper, found.borders[-1])
                if solved is None:
                    return None
                found.value, found.error = found.value + solved.value, found.error + solved.error
                places, width = solved.filter.layout.observed.shape[1:]
                found.borders.append(Border(solved.filter.carried.last, solved.smoothed.last))
            if found.error <= _FINE * max(self.size, abs(found.value)) or places <= 1:
                return found
            # A covariance inside a block loses digits where noise is small against what the block may do.
            self._last["length"] = max(1, places // _SHORTER) * width

    def _backward(
        self, hyper: Hyperparameters, borders: list[Border], *, keep: bool = False
    ) -> Iterator[tuple[MarkovData, Solved]]:
        """Yield pieces, from the last one to the first, with all that is said at both ends."""
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


@dataclass(frozen=True)
class PiecesPosterior:
    """The posterior of rows on disk; pieces in which something is asked for are read again.

    Parameters
    ----------
    engine : PiecesEngine
    hyper : Hyperparameters
    borders : tuple of Border
        What is said at both ends of each piece.
    value, error : float
        The log evidence in the user's units, and about how large an error rounding makes in it.
    """

    engine: PiecesEngine
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
                self._piece(number).check_exact_values()

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
        return self._piece(int(numbers[0])).covariance(observables, times)

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
        starts: list[tuple[Array | None, Array | None]] = [(None, None)]
        score = None
        last = len(self.borders) - 1
        for number in (*range(last), *range(last, -1, -1)):
            own = np.flatnonzero(numbers == number)
            piece, (state, mean) = self._piece(number), starts[number]
            look, rows = piece.look_at_once(observables, times[own])
            # The same numbers on the way there and back.
            generator = np.random.default_rng([*seed.tolist(), number])
            seen, states, end = look.draw(count, generator, state)
            variance = piece.data.noise.variance(self.hyper.noise)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            ahead = len(starts) == number + 1 and number < last
            border = Border(mean=mean, score=None if ahead else score)
            y, smoothed = look.smooth(piece.solved.residual[:, None] - seen - noise, border)
            if ahead:
                starts.append((end, smoothed.last))
                continue
            score = smoothed.scores[0]
            every = states + look.follow(y, smoothed)
            yield own, piece.combine(observables, times[own], rows, every).transpose(2, 0, 1)

    def _numbers(self, observables: Observables, times: Array) -> Numbers:
        """Return the piece that each time is in."""
        if observables.windows is not None:
            _refuse("means and totals over intervals")
        return np.maximum(np.searchsorted(self.engine.starts, times, side="right") - 1, 0)

    def _ask(
        self, observables: Observables, times: Array, question: Callable[[MarkovPosterior, Array], Array]
    ) -> Array:
        found, numbers = np.zeros((len(times), observables.count)), self._numbers(observables, times)
        for number in np.unique(numbers).tolist():
            found[numbers == number] = question(self._piece(number), times[numbers == number])
        return found

    def _piece(self, number: int) -> MarkovPosterior:
        """Return the posterior in one piece; the last one is kept."""
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
