"""Curves over measurements as SVG: drawn in a blink while a slider moves, in the colours of the page around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_ticks", "draw_curves"]

Array = NDArray[np.float64]
#: Width of the drawing, height of a panel, and what is left for labels at the left, above a panel and at the bottom.
_WIDTH, _HEIGHT, _LEFT, _ABOVE, _BELOW = 640.0, 132.0, 52.0, 30.0, 40.0
#: More points than this cannot be told apart.
_POINTS = 300


def choose_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers between two numbers, about so many as `count` says.

    Parameters
    ----------
    low, high : float
    count : int

    Examples
    --------
    >>> choose_ticks(0.0, 10.0), choose_ticks(-0.52, 0.93)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [-0.5, 0.0, 0.5])
    >>> choose_ticks(0.0, 4e-13)
    [0.0, 1e-13, 2e-13, 3e-13, 4e-13]
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs(math.log(size / rough)))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Twelve digits: a multiple of 0.1 is shown as what it is meant to be.
    return [float(f"{number * step:.12g}") + 0.0 for number in range(first, last + 1)]


def draw_curves(
    names: Sequence[str],
    times: Array,
    mean: Array,
    points: Mapping[str, tuple[Array, Array]],
    *,
    units: Mapping[str, str],
    words: str,
    held: Sequence[str] = (),
    known: Sequence[str] = (),
) -> str:
    """Return curves over measurements as SVG, one panel for each channel.

    Parameters
    ----------
    names : sequence of str
        Of the channels.
    times : array, shape (n,)
    mean : array, shape (n, channels)
    points : dict of str to (times, values)
        The measurements.
    units : dict of str to str
        Of the channels, and of ``t``.
    words : str
        What the drawing shows, for those who cannot see it.
    held, known : sequence of str
        Channels that are drawn as steps, and those that are known inputs.
    """
    span = float(times[0]), float(times[-1])
    parts, top = [], 0.0
    for number, name in enumerate(names):
        note = " – known" if name in known else "" if name in points else " – not measured"
        unit = f" in {units[name]}" if units.get(name) else ""
        title = f'<tspan font-weight="700">{escape(name)}</tspan>{escape(unit)}<tspan opacity="0.65">{note}</tspan>'
        own = None if name in known else points.get(name)
        parts.append(_panel(top, title, span, times, mean[:, number], own, is_held=name in held))
        top += _ABOVE + _HEIGHT
    label = f"t in {units['t']}" if units.get("t") else "t"
    ticks = "".join(
        f'<text x="{_across(tick, span):.1f}" y="{top + 16:.1f}" text-anchor="middle">{tick:.6g}</text>'
        for tick in choose_ticks(*span, 6)
    )
    middle = (_LEFT + _WIDTH) / 2
    ticks += f'<text x="{middle:.1f}" y="{top + 34:.1f}" text-anchor="middle">{escape(label)}</text>'
    return (
        f'<svg class="lk-curves" role="img" aria-label="{escape(words)}" viewBox="0 0 {_WIDTH:.0f} {top + _BELOW:.0f}" '
        f'font-size="12.5" fill="currentColor">{"".join(parts)}{ticks}</svg>'
    )


def _across(time: float, span: tuple[float, float]) -> float:
    return _LEFT + (_WIDTH - _LEFT - 8) * (time - span[0]) / ((span[1] - span[0]) or 1.0)


def _panel(
    top: float,
    title: str,
    span: tuple[float, float],
    times: Array,
    curve: Array,
    points: tuple[Array, Array] | None,
    *,
    is_held: bool,
) -> str:
    """Return one panel whose upper edge lies at `top`; what grows beyond the measurements does not flatten them."""
    values = curve if points is None or not len(points[1]) else points[1]
    low, high = float(values.min()), float(values.max())
    reach = 0.6 * (high - low) or 1.0
    low, high = max(min(low, float(curve.min())), low - reach), min(max(high, float(curve.max())), high + reach)
    margin = 0.06 * (high - low) or 0.5
    low, high = low - margin, high + margin
    upper = top + _ABOVE

    def down(value: float) -> float:
        return upper + _HEIGHT * (1.0 - (value - low) / (high - low))

    lines, labels = [], []
    for tick in choose_ticks(low, high, 3):
        y = down(tick)
        lines.append(f"M{_LEFT:.0f} {y:.1f}H{_WIDTH - 8:.0f}")
        labels.append(f'<text x="{_LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    lines += [f"M{_across(tick, span):.1f} {upper:.1f}v{_HEIGHT:.0f}" for tick in choose_ticks(*span, 6)]
    grid = f'<path d="{"".join(lines)}" stroke="currentColor" opacity="0.12" fill="none"/>'
    edge = f"M{_LEFT:.0f} {upper:.1f}v{_HEIGHT:.0f}H{_WIDTH - 8:.0f}"
    frame = f'<path d="{edge}" stroke="currentColor" opacity="0.3" fill="none"/>'
    dots = ""
    if points is not None:
        chosen = slice(None, None, max(len(points[0]) // _POINTS, 1))
        places = zip(points[0][chosen].tolist(), points[1][chosen].tolist(), strict=True)
        marks = "".join(f"M{_across(t, span):.1f} {down(y):.1f}h0" for t, y in places)
        dots = f'<path d="{marks}" stroke="currentColor" stroke-width="5" stroke-linecap="round" opacity="0.6"/>'
    clipped = np.clip(curve, low - 10 * (high - low), high + 10 * (high - low)).tolist()
    xs = [_across(t, span) for t in times.tolist()]
    ys = [down(value) for value in clipped]
    path = f"M{xs[0]:.1f} {ys[0]:.1f}" + "".join(
        f"H{x:.1f}V{y:.1f}" if is_held else f"L{x:.1f} {y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True)
    )
    name = f"clip{top:.0f}"
    inside = f'<rect x="{_LEFT}" y="{upper:.1f}" width="{_WIDTH - _LEFT}" height="{_HEIGHT}"/>'
    box = f'<clipPath id="{name}">{inside}</clipPath>'
    look = f'stroke="var(--accent)" stroke-width="2" fill="none" clip-path="url(#{name})"'
    line = f'<path class="lk-curve" d="{path}" {look}/>'
    head = f'<text x="{_LEFT:.0f}" y="{upper - 8:.1f}" font-size="13">{title}</text>'
    return f"{box}{grid}{frame}{''.join(labels)}{head}{dots}{line}"
