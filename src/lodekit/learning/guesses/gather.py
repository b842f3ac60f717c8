"""All guesses of the parameters together, by the way in which they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Series, at_middle
from lodekit.learning.guesses.decays import decay_guesses
from lodekit.learning.guesses.delays import delay_guesses
from lodekit.learning.guesses.implied import equations_of_records
from lodekit.learning.guesses.smoothed import match_derivatives
from lodekit.learning.guesses.weak import weak_guesses
from lodekit.learning.objective import Objective
from lodekit.learning.transforms import Layout
from lodekit.system.system import System

__all__ = ["Guess", "gather_guesses"]

Array = NDArray[np.float64]
#: How many guesses each way gives at most.
_WEAK, _SMOOTHED = 3, 2
#: How far a guess may be from the size to expect, as a logarithm.
_FARTHEST = 5.0


@dataclass(frozen=True, eq=False)
class Guess:
    """Values to start from.

    Parameters
    ----------
    family : str
        The way they were made: ``"given"``, ``"weak"``, ``"smoothed"``, ``"decay"`` or ``"blind"``.
    theta : array, shape (p,)
        Values of the parameters, NaN where there are none.
    """

    family: str
    theta: Array


def gather_guesses(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[Series]],
    generator: np.random.Generator,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
) -> list[Guess]:
    """Return guesses of the parameters; what the user says comes before what the data suggest.

    Blind ones are always among them, unless the user has given all: every other way has data that mislead it.

    Parameters
    ----------
    system : System
    objective : Objective
    records : sequence of sequences of Series
        Measurements of each record, or averages of them, from which values are guessed.
    generator : numpy.random.Generator
        For all that is tried at random.
    inputs : sequence of dict of str to InputSignal, optional
        Channels that are known for all times, in each record.
    """
    layout = objective.layout
    given = [system.parameters[name].start for name in layout.names]
    starts = np.array([np.nan if start is None else start for start in given])
    if not len(layout.learned) or not np.isnan(starts[layout.learned]).any():
        return [Guess("given", starts)]
    found: list[Guess] = []
    records = [[at_middle(item) for item in record] for record in records]
    equations = equations_of_records(system, records, layout, inputs)
    if equations and not system.delayed_channels:
        found += [Guess("weak", theta) for theta in weak_guesses(equations, layout, generator)[:_WEAK]]
    elif equations and layout.processes:
        # Without free functions, simulations are compared at many delays anyway.
        found += [Guess("weak", theta) for theta in delay_guesses(system, equations, layout, generator)]
    if equations and not any(each.is_driven for each in equations):
        # Nobody should smooth an input that jumps, nor what responds to it.
        found += [Guess("smoothed", theta) for theta in match_derivatives(equations, layout, _SMOOTHED, generator)]
    if not any(inputs or ()):
        series = [item for record in records for item in record]
        found += [Guess("decay", theta) for theta in decay_guesses(objective.engine.prior, series, layout, generator)]
    found += [Guess(guess.family, theta) for guess in found if (theta := _sensible(layout, guess.theta)) is not None]
    found = [Guess(guess.family, np.where(np.isnan(starts), guess.theta, starts)) for guess in found]
    return [*found, Guess("blind", starts)]


def _sensible(layout: Layout, theta: Array) -> Array | None:
    """Return values brought back to within some powers of ten of the size to expect; None where they are there.

    A parameter that is all but zero, or huge, may do nothing to the evidence any more: a search would not find back.
    """
    found = theta.copy()
    for number in layout.learned:
        if np.isnan(theta[number]):
            continue
        transform = layout.transforms[number]
        if transform.is_unbounded:
            most = transform.size * np.exp(_FARTHEST)
            found[number] = np.clip(theta[number], -most, most)
        else:
            x = np.clip(transform.inverse(float(theta[number])) - transform.centre, -_FARTHEST, _FARTHEST)
            found[number] = transform.forward(transform.centre + float(x))
    return None if np.allclose(found, theta, rtol=1e-6, equal_nan=True) else found
