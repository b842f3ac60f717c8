"""Figures from values (times, means, bands, data), never from the estimator; readable at paper width.

Every function draws on given axes and leaves matplotlib's global state alone: no pyplot, no settings. The colours are
those of Okabe and Ito, which colour-blind readers can tell apart; lines differ in their dashes, too (`style`). `axes`
makes figures, labels and legends; each of the others draws one kind of thing.
"""

from lodekit.plotting.axes import (
    add_legend,
    draw_note,
    frame,
    import_matplotlib,
    label_bottom,
    make_panels,
    name_with_unit,
    read_axes,
    to_png,
)
from lodekit.plotting.channels import draw_channel, draw_input, draw_residual
from lodekit.plotting.dynamics import draw_frequency_response, draw_step
from lodekit.plotting.evidence import draw_evidence, draw_parameter
from lodekit.plotting.frequencies import draw_modes, draw_spectrum
from lodekit.plotting.residuals import draw_correlations, draw_cumulated, draw_scatter
from lodekit.plotting.style import OKABE_ITO, WIDTH

__all__ = [
    "OKABE_ITO",
    "WIDTH",
    "add_legend",
    "draw_channel",
    "draw_correlations",
    "draw_cumulated",
    "draw_evidence",
    "draw_frequency_response",
    "draw_input",
    "draw_modes",
    "draw_note",
    "draw_parameter",
    "draw_residual",
    "draw_scatter",
    "draw_spectrum",
    "draw_step",
    "frame",
    "import_matplotlib",
    "label_bottom",
    "make_panels",
    "name_with_unit",
    "read_axes",
    "to_png",
]
