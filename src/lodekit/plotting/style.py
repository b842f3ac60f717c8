"""Colours, widths and sizes that all figures share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "BAND_STYLE",
    "DASHES",
    "DATA",
    "FAINT",
    "MEAN",
    "NORMAL_95",
    "OKABE_ITO",
    "SAMPLE",
    "SHADE",
    "SMALL",
    "TEXT",
    "TRUTH",
    "WIDTH",
]

#: Colours that everyone can tell apart (Okabe and Ito, 2008).
OKABE_ITO: Mapping[str, str] = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
}
#: The text width of a paper, in inches.
WIDTH = 6.5
MEAN, DATA = OKABE_ITO["blue"], OKABE_ITO["black"]
TRUTH, SAMPLE = OKABE_ITO["vermillion"], OKABE_ITO["green"]
#: A band of 95 %, as matplotlib fills it, with its entry of the legend.
BAND_STYLE: Mapping[str, Any] = {
    "color": OKABE_ITO["sky"],
    "alpha": 0.4,
    "linewidth": 0,
    "zorder": 1,
    "label": "95 % band",
}
#: Greys: the ground of what is extrapolated, and of what is said in passing.
SHADE, FAINT = "0.93", "0.45"
#: Sizes of letters, in points.
TEXT, SMALL = 9.0, 8.0
#: The dashes of what curves are compared with: a truth, machine precision, a static gain.
DASHES = (0, (4, 2))
#: So many standard deviations reach to either side of a 95 % band.
NORMAL_95 = 1.959963984540054
