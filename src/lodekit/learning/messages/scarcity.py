"""Warnings about data that tell little: a single value to learn noise from, constants, inputs that are still."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements, Summary
from lodekit.data.moves import GapWatch, is_logged_together
from lodekit.data.noise import LOWEST_OF_ZEROS, Noise
from lodekit.data.records import parts_of

__all__ = ["warn_of_holes", "warn_of_scarcity", "warn_of_still_inputs"]

#: Holes in an input matter that last this share of the record, and so many times as long as the typical step.
_LASTING, _STEPS = 0.1, 5.0

#: What to do about inputs that are not there.
_CURE = "give its values there, or leave that part of the record out"
#: What is said of the noise of an observable that is zero throughout.
_FLOOR = (
    f"; its noise, of which zeros say nothing, is taken to be at least {LOWEST_OF_ZEROS:.0%} of what the equations "
    "make of the rest: give noise_std where it is known"
)


def warn_of_scarcity(summaries: Sequence[Summary], noise: Noise) -> list[str]:
    """Return a warning for each level of noise that one value has to tell, and for each observable that is constant.

    Parameters
    ----------
    summaries : sequence of Summary
        What was measured.
    noise : Noise
        Which level belongs to which observable.
    """
    found = []
    for group in sorted(set(noise.groups)) if noise.count else ():
        own = [item for item, level in zip(summaries, noise.groups, strict=True) if level == group and item.learned]
        if sum(item.learned for item in own) == 1:
            found.append(
                f"the noise of {own[0].observable} is learned from a single value, which cannot tell it; give "
                "noise_std, or [noise] in a system file"
            )
    silent = [item.observable for item in summaries if item.is_zero and item.learned and not noise.shared]
    constant = [item for item in summaries if item.count > 1 and not item.spread > 1e-12 * abs(item.mean)]
    return found + [
        f"all {item.count} values of {item.observable} are {item.mean:.6g}: a constant says little about parameters; "
        "check the column, its unit and the sensor" + (_FLOOR if item.observable in silent else "")
        for item in constant
    ]


def warn_of_holes(measurements: Measurements, time_unit: str = "") -> list[str]:
    """Return a warning for each known input with a hole: at the beginning, a long one, or one in which it moved.

    Parameters
    ----------
    measurements : Measurements
    time_unit : str
        Of the time, for sentences.
    """
    found = []
    for part in parts_of(measurements):
        counts = {item.observable: item.count for item in part.input_summaries}
        for name, signal in part.inputs.items():
            long = list[str]()
            if signal.missing:
                found += _beginning(name, signal, part.window[0], time_unit)
                kept = counts[name] == len(signal.times)
                long = _holes(name, signal, part.window, time_unit, is_whole=kept)
            found += long or _moves(name, signal, part, time_unit)
    return found


def warn_of_still_inputs(measurements: Measurements) -> list[str]:
    """Return a warning of known inputs that never change, and are the same in all records.

    That is no fault where parameters are found nevertheless, as from a step that was made just before the record: it is
    for fits that fail, or leave parameters open.

    Parameters
    ----------
    measurements : Measurements
    """
    parts, found = parts_of(measurements), []
    for name in measurements.inputs:
        signals = [(part.inputs[name], part.window) for part in parts]
        levels = {float(signal.at([window[0]])[0]) for signal, window in signals}
        if len(levels) == 1 and not any(signal.changes(*window) for signal, window in signals):
            found.append(
                f"input {name} never changes (it is {levels.pop():.6g} throughout), so nothing tells how the plant "
                "answers to it: add a record in which it moves, or check its column"
            )
    return found


def _beginning(name: str, signal: InputSignal, first: float, unit: str) -> list[str]:
    """Return what is to be said of an input that is not there at the beginning of a record."""
    begin = float(signal.times[0])
    if not begin > first:
        return []
    return [
        f"{name} has no value before t = {_time(begin, unit)}, where measurements are already there: "
        f"it is taken to have been {signal.values[0]:.6g} since the beginning; {_CURE}"
    ]


def _holes(name: str, signal: InputSignal, window: tuple[float, float], unit: str, *, is_whole: bool) -> list[str]:
    """Return what is to be said of a long hole in one record; whole inputs have all samples that have a value."""
    first, last = window
    inside = signal.times[(signal.times >= first) & (signal.times <= last)]
    # A held input may be written where it changes only: most rows are without a value, and nothing is missing.
    if len(inside) < 2 or not is_whole or (signal.kind == "hold" and signal.missing > len(signal.times)):
        return []
    steps = np.diff(inside)
    place = int(np.argmax(steps))
    if not steps[place] > max(_LASTING * (last - first), _STEPS * float(np.median(steps))):
        return []
    ends = f"t = {inside[place]:.6g} and {_time(inside[place + 1], unit)}"
    what = "kept unchanged" if signal.kind == "hold" else "bridged by a straight line"
    share = f"{steps[place] / (last - first):.0%} of the record"
    return [f"{name} has no value between {ends}, {share}: it is {what}; {_CURE}"]


def _moves(name: str, signal: InputSignal, part: Measurements, unit: str) -> list[str]:
    """Return a warning where an input has another value after a gap of its log than before."""
    moved = part.spooled.samples[name].moved if part.spooled and name in part.spooled.samples else None
    if not part.is_summed:
        measured = np.unique(np.concatenate([item.times for item in part.series]))
        if is_logged_together(len(measured), int(np.isin(measured, signal.times).sum())):
            watch = GapWatch(signal.kind)
            watch.take(signal.times, signal.values)
            moved = watch.moved
    if moved is None:
        return []
    more = f", and in {moved.gaps - 1} more" if moved.gaps > 1 else ""
    lasting, until = _time(moved.last - moved.first, unit), _time(moved.last, unit)
    return [
        f"{name} changed from {moved.before:.6g} to {moved.after:.6g} in a gap of {lasting} "
        f"(t = {moved.first:.6g} to {until}){more}, and when is not known: make two records, one before the "
        f"gap and one after; where you know when, add two rows with {name} alone, just before the change and at it"
    ]


def _time(value: float, unit: str) -> str:
    """Return a time as the warnings write it, with its unit where that is known."""
    return f"{value:.6g} {unit}".rstrip()
