"""Data to try things on: the solution of an example, or a random one, with noise, gaps and hidden channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.columns import format_columns
from lodekit.errors import LodekitError
from lodekit.simulation import simulate
from lodekit.system.catalog import Example
from lodekit.system.system import System

__all__ = ["MOST_TIMES", "Wish", "make_data"]

Array = NDArray[np.float64]
#: More times than this are no data that somebody tries things on.
MOST_TIMES = 20_000


@dataclass(frozen=True)
class Wish:
    """Which data are wanted.

    Parameters
    ----------
    start, stop : float
        The first and the last time.
    count : int
        How many times there are.
    noise : float
        Its standard deviation, as a share of how much a channel varies.
    gaps : float
        The share of values that are missing.
    hidden : tuple of str
        Channels that nobody measures.
    seed : int
        Of noise and gaps.
    """

    start: float = 0.0
    stop: float = 10.0
    count: int = 60
    noise: float = 0.02
    gaps: float = 0.0
    hidden: tuple[str, ...] = ()
    seed: int = 0


def make_data(wish: Wish, system: System, values: Mapping[str, float], example: Example | None = None) -> str:
    """Return simulated measurements as the text of a CSV file.

    Parameters
    ----------
    wish : Wish
    system : System
    values : dict of str to float
        Of the parameters.
    example : Example, optional
        Whose exact solution is taken; a random solution of the system otherwise.

    Examples
    --------
    >>> from lodekit.system import catalog
    >>> example = catalog.heating()
    >>> text = make_data(Wish(count=3, noise=0.0, hidden=("u",)), example.system, {}, example)
    >>> text.splitlines()[0], len(text.splitlines())
    ('t,f1,f2', 4)
    """
    if not 2 <= wish.count <= MOST_TIMES:
        raise LodekitError(f"expected 2 to {MOST_TIMES} times, got {wish.count}")
    if not wish.start < wish.stop:
        raise LodekitError(f"expected a first time before the last, got {wish.start:g} and {wish.stop:g}")
    shown = [name for name in system.plain_channels if name not in wish.hidden]
    if not shown:
        raise LodekitError("expected at least one channel that is measured, got none")
    times = np.linspace(wish.start, wish.stop, wish.count)
    table = _solve(wish, times, system, values, example)
    generator = np.random.default_rng(wish.seed)
    noise = generator.standard_normal(table.shape) * wish.noise * np.std(table, axis=0)
    missing = generator.random(table.shape) < wish.gaps
    made = np.where(missing, np.nan, table + noise)
    columns = {name: made[:, i].tolist() for i, name in enumerate(system.plain_channels) if name in shown}
    return format_columns({"t": times.tolist(), **columns})


def _solve(wish: Wish, times: Array, system: System, values: Mapping[str, float], example: Example | None) -> Array:
    """Return a solution, exact where there is an example, shape (n, channels)."""
    if example is None:
        return np.asarray(simulate(system, times, values, random_state=wish.seed)[0])
    order = [list(example.system.channels).index(name) for name in system.plain_channels]
    return np.asarray(example.solution_at(times)[:, order])
