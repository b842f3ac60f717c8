"""Warnings about data that tell little: a single value to learn noise from, constants, inputs that are still."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements, Summary
from lodekit.data.noise import LOWEST_OF_ZEROS, Noise
from lodekit.data.records import parts_of

__all__ = ["warn_of_holes", "warn_of_scarcity", "warn_of_still_inputs"]

#: Holes in an input matter that last this share of the record, and so many times as long as the typical step.
_LASTING, _STEPS = 0.1, 5.0

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
    """Return a warning for each known input that is missing at the beginning, or for a large share of the record.

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
            if signal.missing:
                kept = counts[name] == len(signal.times)
                found += _holes(name, signal, part.window, time_unit, is_whole=kept)
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


def _holes(name: str, signal: InputSignal, window: tuple[float, float], unit: str, *, is_whole: bool) -> list[str]:
    """Return what is to be said of one input in one record; whole ones have all samples that have a value."""
    found, (first, last) = [], window
    cure = "give its values there, or leave that part of the record out"
    begin = float(signal.times[0])
    if begin > first:
        found.append(
            f"{name} has no value before t = {f'{begin:.6g} {unit}'.rstrip()}, where measurements are already there: "
            f"it is taken to have been {signal.values[0]:.6g} since the beginning; {cure}"
        )
    inside = signal.times[(signal.times >= first) & (signal.times <= last)]
    # A held input may be written where it changes only: most rows are without a value, and nothing is missing.
    if len(inside) < 2 or not is_whole or (signal.kind == "hold" and signal.missing > len(signal.times)):
        return found
    steps = np.diff(inside)
    place = int(np.argmax(steps))
    if steps[place] > max(_LASTING * (last - first), _STEPS * float(np.median(steps))):
        ends = f"t = {inside[place]:.6g} and {f'{inside[place + 1]:.6g} {unit}'.rstrip()}"
        what = "kept unchanged" if signal.kind == "hold" else "bridged by a straight line"
        share = f"{steps[place] / (last - first):.0%} of the record"
        found.append(f"{name} has no value between {ends}, {share}: it is {what}; {cure}")
    return found
