"""The posterior of the Markov engine: means, covariances and samples of any observable, strict by construction.

Everything is computed for states; observables are exact combinations of these. So the equations hold to rounding.
Samples follow Matheron's rule: a draw from the prior, corrected by the data as the mean is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.contradictions import check_missed
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.markov.evaluation import Solved
from lodekit.inference.markov.filtering import make_filter
from lodekit.inference.markov.layout import Layout, MarkovData
from lodekit.inference.markov.looking import Look
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.steps import NoisySteps
from lodekit.inference.markov.sums import SummedSpace, Sums, sum_up
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["MarkovPosterior"]

Array = NDArray[np.float64]
#: Numbers that draws which are made at once may have.
_TOGETHER = 4_000_000
#: What a block may do to a measurement, in units of its noise, squared: rounding of this leaves ten digits. Blocks that
#: may do more are cut shorter, by so much.
_LOUD, _SHORTER = 1e6, 4
#: So many intervals that were asked for may be open at the same time, each with a state of its own.
_OPEN = 16


@dataclass(frozen=True)
class MarkovPosterior:
    """The posterior at given hyperparameters.

    Parameters
    ----------
    data : MarkovData
        Measurements with their prior.
    hyper : Hyperparameters
    solved : Solved
        At these hyperparameters.
    length : int, optional
        How many measurements a block has, where it matters.
    """

    data: MarkovData
    hyper: Hyperparameters
    solved: Solved
    length: int | None = None
    _looks: dict[bytes, Look] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_looks": {}}

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.solved.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.solved.error

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: states do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met: they contradict each other or the equations."""
        data = self.data
        exact = data.noise.exact
        if not exact.any():
            return
        numbers = np.repeat(np.arange(len(data.index)), np.diff(data.edges))[exact]
        times = data.times[np.concatenate(data.index)[exact]]
        with np.errstate(all="ignore"):
            met = self.mean(data.prior.observables, times)[np.arange(len(times)), numbers]
        check_missed(times, met - data.values[exact])

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Parameters
        ----------
        observables : Observables
            Compiled, o of them; their units are those of the answer.
        times : array, shape (n,)
            In the user's units.
        """
        parts = self._parts(observables, times)
        if len(parts) > 1:
            return self._scatter(parts, [self.mean(observables, times[part]) for part in parts])
        look, rows = self._look(observables, times)
        return self.combine(observables, times, rows, look.means(look.values))[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        parts = self._parts(observables, times)
        if len(parts) > 1:
            return self._scatter(parts, [self.variance(observables, times[part]) for part in parts])
        look, rows = self._look(observables, times)
        found = np.zeros((len(times), observables.count))
        for part in look.covariances():
            found[part.asked] = part.variance(rows[part.asked])
        return found

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        (look, rows), count = self.look_at_once(observables, times), observables.count
        found = np.zeros((len(times), count, len(times), count))
        carried, information = look.filter.carried, look.information
        size, every = look.filter.space.size, np.arange(count)
        # What was asked for in earlier blocks, and its covariance with the state at the start of the next one.
        earlier, known, at = np.zeros(0, dtype=np.intp), np.zeros((0, size)), 0
        for part in look.covariances():
            here, b = part.asked, part.block
            H = rows[here]
            inner = part.covariance(H)
            found[here[:, None, None, None], every[:, None, None], here[:, None], every] = inner
            known = known @ look.between(at, b)
            told = look.filter.told[look.filter.layout.patterns[b]]
            open_ = np.eye(size) - carried.gain[b] @ told
            start = H @ part.start @ open_
            end = H @ part.end
            # (a, o, s): how they follow from the state at the start of this block, given everything.
            seen = start - end @ information[b + 1] @ carried.closed[b]
            cross = (known @ seen.reshape(-1, size).T).reshape(len(earlier), count, len(here), count)
            found[earlier[:, None, None, None], every[:, None, None], here[:, None], every] = cross
            turned = cross.transpose(2, 3, 0, 1)
            found[here[:, None, None, None], every[:, None, None], earlier[:, None], every] = turned
            earlier = np.concatenate([earlier, here])
            known = np.concatenate([known @ carried.closed[b].T, end.reshape(-1, size)])
            at = b + 1
        return found

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        (look, rows), variance = self.look_at_once(observables, times), self.data.noise.variance(self.hyper.noise)
        layout = look.filter.layout
        most = max(1, _TOGETHER // (layout.blocks * (layout.places + 1) * max(1, look.filter.space.size)))
        found = []
        for start in range(0, size, most):
            seen, states, _ = look.draw(min(most, size - start), generator)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            found.append(states + look.means(look.values - seen - noise))
        every = np.concatenate(found, axis=2) if found else np.zeros((len(times), look.filter.space.size, 0))
        return self.combine(observables, times, rows, every).transpose(2, 0, 1)

    def combine(self, observables: Observables, times: Array, readings: Array, states: Array) -> Array:
        """Return observables of states in their units, all that is known added, shape (n, o, k).

        Parameters
        ----------
        observables, times
            As in `mean`.
        readings : array, shape (n, o, s)
            Of the observables.
        states : array, shape (n, s, k)
        """
        values = observables.evaluate(self.hyper.theta)
        means, _ = observables.means(values, times, slopes=False)
        return np.asarray(np.einsum("aoi,aik->aok", readings, states) + np.stack(means, axis=1)[:, :, None])

    def _parts(self, observables: Observables, times: Array) -> list[NDArray[np.intp]]:
        """Return which times are looked at together: of intervals that end at them only a few may overlap."""
        windows, every = observables.windows, np.arange(len(times))
        if windows is None or not len(times):
            return [every]
        order = np.argsort(times, kind="stable")
        scaled = np.unique(self.data.prior.units.scaled_times(times))
        open_ = np.arange(1, len(scaled) + 1)[:, None] - np.searchsorted(scaled, scaled[:, None] - windows)
        count = -(-int(open_.sum(axis=1).max()) // _OPEN)
        return [order[start::count] for start in range(count)] if count > 1 else [every]

    @staticmethod
    def _scatter(parts: list[NDArray[np.intp]], found: list[Array]) -> Array:
        every = np.zeros((sum(map(len, parts)), found[0].shape[1]))
        for part, own in zip(parts, found, strict=True):
            every[part] = own
        return every

    def look_at_once(self, observables: Observables, times: Array) -> tuple[Look, Array]:
        """Return places for times among the blocks, and the rows of observables there, shape (n, o, s).

        Parameters
        ----------
        observables, times
            As in `mean`.
        """
        if len(self._parts(observables, times)) > 1:
            raise LodekitError(
                "too many of the intervals that were asked for overlap for covariances and samples of the Markov "
                "engine; ask for fewer times, or use engine='dense'"
            )
        return self._look(observables, times)

    def _look(self, observables: Observables, times: Array) -> tuple[Look, Array]:
        """Return places for times among the blocks, and the rows of observables there, shape (n, o, s).

        The last places are kept.
        """
        data, space, sums = self.data, self.solved.filter.space, None
        values, key = observables.evaluate(self.hyper.theta), np.ascontiguousarray(times).tobytes()
        if observables.windows is None:
            rows = space.readings_of(observables, values)
        else:
            base = space.without if isinstance(space, SummedSpace) else space
            sums = self._sums(observables.windows, times)
            own = base.readings_of(observables, values)
            space = sum_up(replace(base, readings=np.concatenate([base.readings, own])), sums)
            rows = space.readings[sums.readings[data.size :].reshape(observables.count, len(times)).T]
            key += observables.windows.tobytes() + own.tobytes()
        rows = np.broadcast_to(rows, (len(times), observables.count, space.size))
        if key not in self._looks:
            layout, places = self._cut(space, data.prior.units.scaled_times(times), sums)
            residual, variance = self.solved.residual[:, None], self.solved.filter.variance
            with np.errstate(all="ignore"):
                spread = layout.spread(residual, 0.0)
                made = make_filter(space, layout, variance, spread, looking=True, border=self.solved.filter.border)
            if made is None:
                raise AccuracyError(
                    "the states are not finite at these values and times; ask for times closer to the data"
                )
            self._looks.clear()
            self._looks[key] = Look(made[0], places, residual, made[1])
        return self._looks[key], rows

    def _cut(self, space: Space, times: Array, sums: Sums | None) -> tuple[Layout, NDArray[np.intp]]:
        """Return blocks with places for times, and these; short ones where noise is far below what a block may do.

        Covariances inside blocks are differences: they err as the signal does, and are as small as the noise.
        """
        variance, length, n = self.solved.filter.variance, self.length, space.noisy
        parts = np.split(variance, self.data.edges[1:-1])
        quiet = min((float(np.quantile(part, 0.1)) for part in parts if len(part)), default=np.inf)
        while True:
            layout, places = self.data.with_times(times, length, sums)
            span = float((layout.times[:, -1] - layout.times[:, 0]).max(initial=0.0))
            with np.errstate(all="ignore"):
                noise = NoisySteps(space.matrix[:n, :n], space.density, np.array([span])).noises[0]
                loud = np.einsum("oi,ij,oj->o", space.readings[:, :n], noise, space.readings[:, :n]) > _LOUD * quiet
            if layout.places == 1 or not loud.any():
                return layout, places
            length = max(1, layout.places // _SHORTER) * layout.observed.shape[2]

    def _sums(self, windows: Array, times: Array) -> Sums:
        """Return the intervals of the measurements and of what is asked for."""
        data, asked = self.data, self.data.prior.units.scaled_times(times)
        measured = data.prior.observables.windows
        ends = [data.scaled_times[index] for index in data.index] + [asked] * len(windows)
        windows = np.concatenate([np.zeros(len(data.index)) if measured is None else measured, windows])
        every = np.unique(np.concatenate([data.scaled_times, asked]))
        return Sums.of(windows, ends, every, data.resolution)
