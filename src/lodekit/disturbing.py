"""Fits with disturbances: they start from a fit without any, and tell which of them are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import parts_of
from lodekit.errors import AccuracyError, FitError
from lodekit.learning.objective import Objective
from lodekit.learning.searches.disturbed import learn_disturbed, settle_disturbances
from lodekit.learning.searches.driven import search_along
from lodekit.learning.searches.learn import guess_starts
from lodekit.learning.searches.search import Optimum, search
from lodekit.preparing import prepare
from lodekit.prior.disturbed import need
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior
from lodekit.setup import Setup

__all__ = ["PieceLearned", "find_disturbed", "without_disturbances"]

Array = NDArray[np.float64]
#: What a step has to gain in a search that tells what is lost without a disturbance.
_LOOKED = 1e-4
#: The same where rows are on disk.
_READ = 0.1
#: What a piece of the rows has to gain by a disturbance, in nats, so that nobody asks the others.
_CERTAIN = 25.0


class PieceLearned(NamedTuple):
    """What a piece of a record says.

    Parameters
    ----------
    x : array, shape (n,)
        Its optimum, a vector of the layout of the whole.
    curvature : array, shape (n, n)
        The one to expect of the whole.
    gains : dict of str to float
        By how much the objective of the piece is less without each disturbance.
    """

    x: Array
    curvature: Array
    gains: Mapping[str, float]


def without_disturbances(setup: Setup, names: Iterable[str]) -> Setup:
    """Return the setup of the same fit without some disturbances, in the same units.

    Parameters
    ----------
    setup : Setup
    names : iterable of str
        Disturbances that are zero.
    """
    left, units = dict(setup.reader.disturbances), setup.prior.units
    for name in names:
        del left[name]
    gone = [name for name in setup.reader.disturbances if name not in left]
    engine = setup.arguments.engine if left else "auto"
    return prepare(
        setup.system.given(gone, are_all=False),
        replace(setup.arguments, disturbances=left or None, engine=engine),
        setup.measurements,
        time=units,
        scales=dict(zip(setup.measurements.names, units.scales.tolist(), strict=True)),
        starts={name: part.prior.units.start for name, part in setup.parts.items()},
    )


def find_disturbed(
    setup: Setup, known: Array | None, find: Callable[[Setup], Optimum], piece: PieceLearned | None = None
) -> tuple[Optimum, dict[str, float]]:
    """Return the best optimum of a fit with disturbances, and the best objective without each of them, by name.

    Parameters
    ----------
    setup : Setup
    known : array, optional
        A vector of the layout from an earlier fit, to start from.
    find : function
        From a setup without disturbances to its best optimum.
    piece : PieceLearned, optional
        What a piece of the record says, to start from.
    """
    objective, layout = setup.objective, setup.layout
    bare = without_disturbances(setup, list(setup.reader.disturbances))
    first = None
    found: Optimum | None
    if piece is not None:
        found = _go_on(objective, piece)
    elif known is None:
        try:
            first = find(bare)
        except (AccuracyError, FitError):
            # Data with next to no noise may not be possible at all without disturbances.
            first = None
        origins = [] if first is None else [bare.layout.unpack(first.x)]
        if first is None or not setup.case.on_disk:
            # Rows on disk take long to look at: what is best without disturbances has to do.
            origins += [bare.layout.unpack(x) for x in _guess(bare)]
        scatter = setup.measurements.scatter()
        found = learn_disturbed(objective, origins, None if scatter is None else setup.prior.noise.medians(scatter))
        if found is None:
            raise FitError("no start gives a finite evidence; give start= values near the truth, or check the units")
    else:
        found = search(objective, known)
    found = settle_disturbances(objective, found)
    if first is not None and len(setup.reader.disturbances) == 1:
        return found, dict.fromkeys(setup.reader.disturbances, first.value)
    without, best = {}, layout.unpack(found.x)
    for name in setup.reader.disturbances:
        if piece is not None and piece.gains.get(name, 0.0) > _CERTAIN:
            # What a piece needs, the whole does: it is not looked at again without.
            without[name] = found.value - piece.gains[name]
            continue
        others = without_disturbances(setup, [name])
        start = others.layout.pack(_without(setup.prior, best, name))
        # Rows on disk take long to look at, and are so many that a nat is next to nothing.
        least = _READ if setup.case.on_disk else _LOOKED
        without[name] = search(others.objective, start, tolerance=least, trusted=True).value
    return found, without


def _go_on(objective: Objective, piece: PieceLearned) -> Optimum:
    """Return the optimum of a whole record from that of a piece.

    A record that is many times as long as a piece has an optimum beside its own, and as many times the curvature.
    """
    near = None
    if np.isfinite(piece.curvature).all():
        near = search_along(objective, piece.x, piece.curvature, _LOOKED)
    return near if near is not None and near.converged else search(objective, piece.x)


def _without(prior: Prior, hyper: Hyperparameters, name: str) -> Hyperparameters:
    """Return hyperparameters without those of a disturbance."""
    own = need(prior.observables.disturbed)
    number = own.names.index(name)
    lengths = hyper.disturbance_lengthscales
    if number in own.coloured:
        lengths = np.delete(lengths, own.coloured.index(number))
    deviations = np.delete(hyper.disturbance_deviations, number)
    return replace(hyper, disturbance_lengthscales=lengths, disturbance_deviations=deviations)


def _guess(setup: Setup) -> list[Array]:
    """Return starts that the data suggest, before anything is searched."""
    arguments, measurements = setup.arguments, setup.measurements
    scatter = measurements.scatter()
    return guess_starts(
        setup.system,
        setup.objective,
        [part.thumbnail() for part in parts_of(measurements)],
        restarts=arguments.restarts,
        random_state=arguments.random_state,
        scatter=None if scatter is None else setup.prior.noise.medians(scatter),
        inputs=[part.inputs for part in parts_of(measurements)],
    )
