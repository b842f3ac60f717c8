"""Rows that are too many for memory, on disk: plain numbers, which are read piece by piece as often as asked."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.data.moves import Moved
from lodekit.data.observations import Series
from lodekit.errors import DataError

__all__ = ["Head", "LeftOut", "Spool", "SpoolBlock", "Spooled", "Spread"]

Array = NDArray[np.float64]
_BYTES = 8


class SpoolBlock(Protocol):
    """Some rows, as tables have them."""

    @property
    def times(self) -> Array:
        """Of each row."""

    @property
    def values(self) -> Mapping[str, Array]:
        """By observable; NaN for missing."""

    @property
    def noise(self) -> Mapping[str, Array]:
        """Known standard deviations, where they have a column."""


@dataclass(frozen=True)
class Spooled:
    """Rows that can be read again; they are put on disk as plain numbers when somebody needs them.

    Parameters
    ----------
    names : tuple of str
        What was measured.
    noise : dict of str to float
        Known standard deviations that are the same for all rows.
    noisy : tuple of str
        Observables whose known standard deviations stand in the rows.
    blocks : function
        Returns the rows, in blocks.
    ready : Spool, optional
        The rows, where they are on disk already.
    window : (float, float), optional
        The first and the last time at which one of these was measured; that of all columns otherwise.
    samples : dict of str to Spread
        What is known of the samples of inputs, which were columns of these rows.
    left_out : LeftOut, optional
        Where these are the end of longer rows: what is known of those before them.
    """

    names: tuple[str, ...]
    noise: Mapping[str, float]
    noisy: tuple[str, ...]
    blocks: Callable[[], Iterator[SpoolBlock]]
    ready: Spool | None = None
    window: tuple[float, float] | None = None
    samples: Mapping[str, Spread] = field(default_factory=dict)
    left_out: LeftOut | None = None

    @cached_property
    def spool(self) -> Spool:
        """The rows on disk."""
        return self.ready or Spool.write(self.names, self.blocks(), self.noise, self.noisy)


class Spread(NamedTuple):
    """What is known of the samples of an input.

    Parameters
    ----------
    samples : int
        How many there are.
    mean, spread : float
        Mean and deviation.
    largest : float
        Of all absolute values.
    moved : Moved, optional
        A gap in its log in which it moved.
    """

    samples: int
    mean: float
    spread: float
    largest: float
    moved: Moved | None = None


class Head(NamedTuple):
    """What rows that were left out say at some values of all that is learned.

    Parameters
    ----------
    point : array
        These values.
    value, error : float
        The log evidence of the rows, and about how large an error rounding makes in it.
    mean, root : arrays, shapes (s, 1) and (s, s)
        Of the states after them, and of their covariance.
    response : array, shape (q,)
        The states of the response to known inputs there.
    """

    point: Array
    value: float
    error: float
    mean: Array
    root: Array
    response: Array


class LeftOut(NamedTuple):
    """What is known of rows before others.

    Parameters
    ----------
    size : int
        How many measurements there were.
    times, counts : arrays, shape (k,)
        Some times of all rows, and for how many each stands.
    heads : tuple of Head
        What they say, at what was learned and beside that.
    """

    size: int
    times: Array
    counts: Array
    heads: tuple[Head, ...]


@dataclass(frozen=True)
class _Rows:
    """Some rows that were on disk."""

    times: Array
    values: Mapping[str, Array]
    noise: Mapping[str, Array]


class _Owner:
    """A folder that is removed when nobody needs it any more; a copy in another process does not remove it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lodekit-rows-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}


@dataclass(frozen=True)
class Spool:
    """Rows in the order of time, in one file of 64-bit numbers; rows without any value are left out.

    Rows of one time that have different columns are one row, as they are in memory.

    Parameters
    ----------
    names : tuple of str
        What was measured.
    columns : tuple of str
        The columns of the file, these among them.
    noise : dict of str to float
        Known standard deviations that are the same for all rows.
    noisy : tuple of str
        Observables whose known standard deviations stand in the file.
    count : int
        How many rows there are.
    gap : float
        The least time between two rows that differ in it; infinite where there are no two.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    noise: Mapping[str, float]
    noisy: tuple[str, ...]
    count: int
    gap: float
    _owner: _Owner = field(compare=False, repr=False)

    @classmethod
    def write(
        cls,
        names: Sequence[str],
        blocks: Iterable[SpoolBlock],
        noise: Mapping[str, float] | None = None,
        noisy: Sequence[str] = (),
    ) -> Spool:
        """Return rows on disk, in a folder for temporary files that is removed when they are not needed any more.

        They take eight bytes for the time, each observable and each column of deviations of noise. The folder is where
        the environment variable TMPDIR says.

        Parameters
        ----------
        names : sequence of str
            What was measured.
        blocks : iterable of SpoolBlock
            In the order of time.
        noise : dict of str to float, optional
            Known standard deviations that are the same for all rows.
        noisy : sequence of str
            Observables whose known standard deviations stand in the blocks.

        Examples
        --------
        >>> from lodekit.data.tables.cells import Numerals
        >>> from lodekit.data.tables.table import Records
        >>> block = Records(np.arange(3.0), {"x": np.array([1.0, np.nan, 2.0])}, {}, Numerals())
        >>> spool = Spool.write(["x"], [block], {"x": 0.1})
        >>> spool.count, spool.read(0, 2)[0].values.tolist()
        (2, [1.0, 2.0])
        """
        owner, count, gap, last, known = _Owner(), 0, np.inf, -np.inf, dict(noise or {})
        pairs = [(1 + k, 1 + len(names) + noisy.index(name) if name in noisy else 0) for k, name in enumerate(names)]
        held = np.zeros((0, 1 + len(names) + len(noisy)))
        with _file(owner).open("wb") as file:
            for block in blocks:
                rows = _table(block, names, known, noisy)
                if not len(rows):
                    continue
                steps = np.diff(np.concatenate([[last], rows[:, 0]]))
                if (steps < 0).any():
                    late = rows[int(np.argmax(steps < 0)), 0]
                    raise DataError(
                        f"rows on disk are gone through in the order of time, and t = {late:g} comes after a later "
                        "one; sort the rows by time, and name files in the order of their times"
                    )
                gap = min(gap, float(np.min(steps, where=(steps > 0) & np.isfinite(steps), initial=np.inf)))
                last = float(rows[-1, 0])
                rows = np.concatenate([held, rows])
                # More rows of the last time may come.
                rows, held = np.split(rows, [int(np.searchsorted(rows[:, 0], last))])
                count += _save(_join_rows(rows, pairs), file)
            count += _save(_join_rows(held, pairs), file)
        if not count:
            raise DataError(f"expected at least one value of {', '.join(names)}, every cell is missing")
        return cls(tuple(names), tuple(names), known, tuple(noisy), count, gap, owner)

    @property
    def folder(self) -> str:
        """Where the file is."""
        return self._owner.folder

    @property
    def _width(self) -> int:
        return 1 + len(self.columns) + len(self.noisy)

    def table(self, first: int, last: int) -> Array:
        """Return some rows as they are: times, all columns, and those of noise.

        Parameters
        ----------
        first, last : int
            As in `read`.
        """
        count = max(0, min(last, self.count) - first)
        try:
            found = np.fromfile(
                _file(self._owner), dtype=float, count=count * self._width, offset=first * self._width * _BYTES
            )
        except FileNotFoundError:
            found = np.zeros(0)
        if len(found) < count * self._width:
            raise DataError(
                "the rows of this fit were on disk as long as it was there, and are gone; call fit again with the file"
            )
        return found.reshape(count, self._width)

    def read(self, first: int, last: int, step: int = 1) -> list[Series]:
        """Return the measurements of some rows, one series for each observable.

        Parameters
        ----------
        first, last : int
            From which row to which one, the last one not included.
        step : int
            Take each so many rows.
        """
        rows, found = self.table(first, last)[::step], []
        times = rows[:, 0]
        for name in self.names:
            values = rows[:, 1 + self.columns.index(name)]
            there = ~np.isnan(values)
            std = np.full(len(rows), self.noise.get(name, np.nan))
            if name in self.noisy:
                std = rows[:, 1 + len(self.columns) + self.noisy.index(name)]
            found.append(Series(name, times[there], values[there], std[there]))
        return found

    def only(self, names: Sequence[str], most: int) -> Spool:
        """Return the rows in which one of some columns has a value, in a file of their own where these are fewer.

        Parameters
        ----------
        names : sequence of str
            The columns that were measured.
        most : int
            How many rows are read at the same time.
        """
        own, firsts = replace(self, names=tuple(names)), range(0, self.count, most)
        places = [1 + self.columns.index(name) for name in names]
        there = sum(int((~np.isnan(self.table(k, k + most)[:, places]).all(axis=1)).sum()) for k in firsts)
        if there == self.count:
            return own
        return Spool.write(names, (own._block(k, k + most) for k in firsts), self.noise, own._noisy)

    @property
    def _noisy(self) -> tuple[str, ...]:
        return tuple(name for name in self.noisy if name in self.names)

    def _block(self, first: int, last: int) -> _Rows:
        rows, noise = self.table(first, last), {}
        for name in self._noisy:
            noise[name] = rows[:, 1 + len(self.columns) + self.noisy.index(name)]
        return _Rows(rows[:, 0], {name: rows[:, 1 + self.columns.index(name)] for name in self.names}, noise)

    def time(self, number: int) -> float:
        """Return the time of a row."""
        return float(self.table(number, number + 1)[0, 0])


def _file(owner: _Owner) -> Path:
    return Path(owner.folder, "rows.f64")


def _save(rows: Array, file: IO[bytes]) -> int:
    """Return how many rows were written."""
    try:
        rows.tofile(file)
    except OSError as problem:
        raise DataError(
            f"rows that are too many for memory are kept in a temporary file, {file.name}, which cannot be written: "
            f"{problem}; set the environment variable TMPDIR to a folder with more room"
        ) from None
    return len(rows)


def _join_rows(rows: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    """Return as few rows as hold all values: the k-th value of a column at some time is in the k-th row of that time.

    Parameters
    ----------
    rows : array, shape (n, c)
        In the order of time, each with some value.
    pairs : sequence of (int, int)
        The columns of values, each with that of its noise; zero where it has none.

    Examples
    --------
    >>> _join_rows(np.array([[3.0, 1.0, np.nan], [3.0, np.nan, 5.0], [4.0, 2.0, 6.0]]), [(1, 0), (2, 0)]).tolist()
    [[3.0, 1.0, 5.0], [4.0, 2.0, 6.0]]
    """
    is_new = np.append(True, np.diff(rows[:, 0]) > 0)[: len(rows)]
    if is_new.all():
        return rows
    begins, group = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    there = ~np.isnan(rows[:, [place for place, _ in pairs]])
    counts = np.add.reduceat(there, begins, axis=0, dtype=np.intp)
    sizes = counts.max(axis=1)
    found = np.full((int(sizes.sum()), rows.shape[1]), np.nan)
    found[:, 0] = np.repeat(rows[begins, 0], sizes)
    for number, (place, noise) in enumerate(pairs):
        own, before = np.flatnonzero(there[:, number]), np.cumsum(counts[:, number]) - counts[:, number]
        target = (np.cumsum(sizes) - sizes - before)[group[own]] + np.arange(len(own))
        found[target, place] = rows[own, place]
        if noise:
            found[target, noise] = rows[own, noise]
    return found


def _table(block: SpoolBlock, names: Sequence[str], noise: Mapping[str, float], noisy: Sequence[str]) -> Array:
    """Return time, values and deviations of the rows of a block that have some value."""
    count = len(block.times)
    columns = [block.values.get(name, np.full(count, np.nan)) for name in names]
    columns += [block.noise.get(name, np.full(count, noise.get(name, np.nan))) for name in noisy]
    table = np.column_stack([block.times, *columns])
    some = ~np.isnan(table[:, 1 : 1 + len(names)]).all(axis=1)
    return table if some.all() else table[some]
