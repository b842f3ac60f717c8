"""A data file as the studio shows it: what its columns hold, what they are taken for, and its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lodekit.data.looking import Look, look_at
from lodekit.data.measurements import Measurements
from lodekit.data.records import Pool
from lodekit.data.sources import read_source
from lodekit.data.tables.columns import LEFT_OUT
from lodekit.errors import DataError
from lodekit.proposal import Guess, find_channels
from lodekit.studio.session import Assignment
from lodekit.system.system import System

__all__ = ["Match", "Recording", "match_columns", "open_recording", "to_guesses"]

Array = NDArray[np.float64]
#: So many columns are drawn at most.
_MOST = 40


@dataclass(frozen=True, eq=False)
class Recording:
    """A data file that was looked at.

    Parameters
    ----------
    path : Path
    look : Look
        What its columns hold.
    records : dict of str to dict of str to (times, values)
        Of each record the points of each column that is drawn; one without a name where there is only one.
    window : (float, float)
        The first and the last time.
    time_unit : str
        Empty where nothing tells.
    origin : str
        The date that is time zero, where times are dates.
    notes : tuple of str
        What was found out about the file, in words.
    """

    path: Path
    look: Look
    records: Mapping[str, Mapping[str, tuple[Array, Array]]]
    window: tuple[float, float]
    time_unit: str = ""
    origin: str = ""
    notes: tuple[str, ...] = ()

    def points(self, record: str = "") -> Mapping[str, tuple[Array, Array]]:
        """Return the points of each column in one record, by its name; in the first where nothing has that name."""
        return self.records.get(record, next(iter(self.records.values()), {}))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of numbers beside the time, drawn or not."""
        return tuple(own.name for own in self.look.columns)

    def span(self, record: str = "") -> tuple[float, float]:
        """Return the first and the last time of a record."""
        every = [times for times, _ in self.points(record).values() if len(times)]
        if not every or len(self.records) < 2:
            return self.window
        return min(float(own.min()) for own in every), max(float(own.max()) for own in every)

    def unit(self, column: str) -> str:
        """Return the unit of a column, as its name tells it; empty where it does not."""
        return next((own.unit for own in self.look.columns if own.name == column), "")


@dataclass(frozen=True)
class Match:
    """What a channel is matched with.

    Parameters
    ----------
    assignment : Assignment
    reason : str
        In words.
    is_changed : bool
        Whether somebody has said so.
    evidence : str
        What the file tells for it, as `Guess.reason` has it; empty where somebody has said so, or nothing does.
    """

    assignment: Assignment
    reason: str
    is_changed: bool = False
    evidence: str = ""


def open_recording(path: Path, dt: float | None = None) -> Recording:
    """Return what a data file holds, and its points.

    Parameters
    ----------
    path : Path
    dt : float, optional
        The time between two lines, where there is no column of times.
    """
    look = look_at(path)
    names = {f"c{number}": column.name for number, column in enumerate(look.columns[:_MOST], 1)}
    if not names:
        raise DataError("expected columns of numbers beside the time, found none")
    if look.time is None and dt is None:
        return Recording(path, look, {}, (0.0, 0.0))
    columns = dict(names) if look.time is None else {**names, "t": look.time.name}
    found = read_source(path, channels=list(names), columns=columns, dt=dt, records=look.record or None)
    kept = found.measurements
    parts = {own.name: own.measurements for own in kept.records} if isinstance(kept, Pool) else {"": kept}
    records = {record: _points(part, names) for record, part in parts.items()}
    window = min(part.window[0] for part in parts.values()), max(part.window[1] for part in parts.values())
    unit = "" if look.time is None else look.time.unit
    origin = "" if found.origin is None else found.origin.isoformat()
    told = [note for note in found.notes if " is in column " not in note]
    if len(look.columns) > _MOST:
        told.append(f"the first {_MOST} of {len(look.columns)} columns are drawn")
    return Recording(path, look, records, window, unit, origin, tuple(told))


def _points(kept: Measurements, names: Mapping[str, str]) -> dict[str, tuple[Array, Array]]:
    return {names[item.observable]: (item.times, item.values) for item in kept.shown if item.observable in names}


def match_columns(look: Look, system: System, changed: Sequence[Assignment]) -> list[Match]:
    """Return what each channel of a system is matched with: what somebody has said, then what names tell.

    Parameters
    ----------
    look : Look
    system : System
    changed : sequence of Assignment
        What somebody has said.
    """
    try:
        guesses = {guess.channel: guess for guess in find_channels(look, system)}
    except DataError:
        # No column is called like a channel: all are open.
        guesses = {}
    said = {item.channel: item for item in changed}
    there = {column.name: column for column in look.columns}
    found = []
    for name in system.plain_channels:
        own, guess = said.get(name), guesses.get(name)
        if own is not None and (own.column in there or not own.column):
            reason = "as you say" if own.column else "left out, as you say"
            found.append(Match(own, reason, is_changed=True))
        elif guess is not None:
            reason = "known, held between samples" if guess.kind else "measured"
            own = Assignment(name, guess.column.name, guess.kind)
            found.append(Match(own, f"{reason}: it {guess.reason}", evidence=guess.reason))
        else:
            found.append(Match(Assignment(name), "no column is called like it"))
    return found


def to_guesses(look: Look, matches: Sequence[Match]) -> tuple[list[Guess], dict[str, str]]:
    """Return what a system file says about columns: guesses of those that are used, and a mapping of changed ones.

    Parameters
    ----------
    look : Look
    matches : sequence of Match
    """
    there = {column.name: column for column in look.columns}
    guesses, mapping = [], dict[str, str]()
    for item in matches:
        own = item.assignment
        if own.column:
            guesses.append(Guess(own.channel, there[own.column], own.kind, item.evidence or "is known"))
        elif item.is_changed:
            mapping[own.channel] = LEFT_OUT
    return guesses, mapping
