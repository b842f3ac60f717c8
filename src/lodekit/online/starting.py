"""A stream begins: where the record of a fit ended, with a new record, or where another stream was saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series
from lodekit.data.records import padded
from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.ending import Ending, end_of, end_of_pieces
from lodekit.inference.markov.engine import MarkovKind
from lodekit.inference.markov.pieces import PiecesEngine
from lodekit.inference.markov.piecewise import PiecesPosterior
from lodekit.inference.markov.states import Space, make_space
from lodekit.online.cusum import check_rate
from lodekit.online.known import Plant, Samples
from lodekit.online.learned import LATEST, find_threshold
from lodekit.online.moment import Moment
from lodekit.online.saving import load_moment
from lodekit.online.stream import Stream

__all__ = ["stream"]

Array = NDArray[np.float64]
_USUAL = {"false_alarms": 1e-4, "shift": 1.0}


def stream(
    fit: Fit,
    *,
    fresh: bool = False,
    resume: str | Path | None = None,
    record: str | int | None = None,
    false_alarms: float | None = None,
    shift: float | None = None,
) -> Stream:
    """Return a filter at the learned parameters that takes rows as they come, at the same cost for every row.

    It holds the state with its covariance, what each row adds to that in standard scores, and alarms: cumulative sums
    of scores, upward and downward, that begin again after each alarm.

    Parameters
    ----------
    fresh : bool
        Whether a new record begins with the first row, and not where that of the fit ended.
    resume : str or Path, optional
        A file that `Stream.save` has written: the stream goes on from there.
    record : str or int, optional
        Which record it goes on from; needed where there are several.
    false_alarms : float, optional
        How many alarms there are for each row in which everything is measured, where the model holds: 1e-4, or that of
        the stream that is resumed.
    shift : float, optional
        The lasting change, in standard scores, that is found fastest: 1, or that of the stream that is resumed.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.arange(40.0)
    >>> u = np.where(t < 10, 0.0, 1.0)
    >>> y = np.where(t < 10, 0.0, 1 - np.exp(-(t - 10) / 5)) + 0.01 * np.sin(7 * t)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    >>> stream = gp.stream()
    >>> found = stream.push(40.0, {"y": 1.0}, inputs={"u": 0.0})
    >>> abs(found["y"].score) < 3, bool(abs(stream.predict(45.0, "y")[0] - np.exp(-1)) < 0.02)
    (True, True)
    """
    if resume is not None and (fresh or record is not None):
        raise LodekitError("a stream that is resumed goes on from its own state; expected no fresh= and no record=")
    asked = {name: given for name, given in (("false_alarms", false_alarms), ("shift", shift)) if given is not None}
    check_rate(**(_USUAL | asked))
    # All records share what was learned.
    fit = fit.parts[0] if record is None and (fresh or resume is not None) else fit.part(record)
    return _begin(fit, resume, asked, fresh=fresh)


def _begin(fit: Fit, resume: str | Path | None, asked: Mapping[str, float], *, fresh: bool) -> Stream:
    """Return a stream of one record, with settings of its alarms where they were asked for."""
    why = MarkovKind().refuses(replace(fit.setup.case, in_memory=True))
    if why:
        raise LodekitError(f"a stream needs a model with finitely many states: {why}")
    prior, hyper, usual = fit.prior, fit.hyperparameters, _USUAL
    space, plant = make_space(prior, hyper, prior.observables.evaluate(hyper.theta)), _plant(fit)
    if resume is not None:
        sizes = space.size, 0 if plant is None else plant.size, len(prior.noise.observables)
        moment, usual = load_moment(fit, resume, sizes, plant)
    else:
        moment = _new_record(fit, space, plant) if fresh else _end_of_record(fit, plant)
    alarms = {**usual, **asked}
    check_rate(**alarms)
    if not all(np.isfinite(part).all() for part in (moment.mean, moment.root, moment.response)):
        raise LodekitError("the states are not finite where the stream begins; expected modes that grow more slowly")
    return Stream(fit, space, plant, moment, **alarms, threshold=find_threshold(fit, _rows(fit), **alarms))


def _rows(fit: Fit) -> list[Series]:
    """Return the measurements of a record that are in memory, the last ones of those on disk; none of sums alone."""
    names, spooled = fit.prior.noise.observables, fit.measurements.spooled
    if not fit.measurements.is_summed:
        return list(padded(fit.measurements, names).series)
    if spooled is None:
        return []
    spool = spooled.spool
    last = Measurements([item for item in spool.read(max(0, spool.count - LATEST), spool.count) if len(item.times)])
    return list(padded(last, names).series)


def _plant(fit: Fit) -> Plant | None:
    """Return the response to known inputs; None where there are none."""
    driven, values = fit.prior.observables.driven, fit.prior.observables.evaluate(fit.hyperparameters.theta)
    if driven is None or values.driven is None:
        return None
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    matrices, delays = driven.drive.matrices(values.driven)[0], driven.drive.delays(values.driven)[0]
    return Plant(matrices, delays, driven.drive.inputs, kinds)


def _new_record(fit: Fit, space: Space, plant: Plant | None) -> Moment:
    """Return the beginning of a record: the prior, and rest."""
    samples = {} if plant is None else {name: Samples(kind) for name, kind in plant.kinds.items()}
    response = np.zeros(0 if plant is None else plant.size)
    return Moment(None, np.zeros(space.size), space.root_at(0.0), response, samples, _no_sums(fit))


def _end_of_record(fit: Fit, plant: Plant | None) -> Moment:
    """Return the end of the record of the fit."""
    with fit.setup.threads():
        end = _states_at_end(fit)
    samples: dict[str, Samples] = {}
    response = np.zeros(0)
    if plant is not None:
        response, samples = plant.begin(fit.measurements.inputs, fit.prior.units.start, end.time)
    return Moment(end.time, end.mean, end.root, response, samples, _no_sums(fit))


def _states_at_end(fit: Fit) -> Ending:
    """Return the states at the end of the record."""
    if isinstance(fit.posterior, PiecesPosterior):
        return end_of_pieces(fit.posterior)
    if not fit.measurements.is_summed:
        return end_of(fit.prior, _rows(fit), fit.hyperparameters)
    spooled = fit.measurements.spooled
    if spooled is None:
        raise LodekitError(
            "the measurements were summed and not kept, so the end of the record is not known; expected fresh=True"
        )
    return end_of_pieces(PiecesEngine(fit.prior, spooled.spool).posterior(fit.hyperparameters))


def _no_sums(fit: Fit) -> list[tuple[float, float]]:
    return [(0.0, 0.0)] * len(fit.prior.noise.observables)
