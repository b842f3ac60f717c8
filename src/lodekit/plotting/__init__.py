"""Figures drawn from values (times, means, bands, data), never from the estimator; readable at paper width.

Every function draws on given axes and does not change matplotlib's global state: no pyplot, no settings. The colours
are those of Okabe and Ito, which colour-blind readers can distinguish; lines also differ in their dashes.
`axes` creates figures, labels and legends, `signals` draws functions of time and frequency, `diagnostics` residuals and
the log evidence around an estimate.
"""

from lodekit.plotting.axes import (
    OKABE_ITO,
    WIDTH,
    add_legend,
    draw_note,
    frame,
    import_matplotlib,
    label_bottom,
    label_time,
    make_panels,
    name_with_unit,
    read_axes,
    to_png,
)
from lodekit.plotting.diagnostics import draw_correlations, draw_cumulated, draw_evidence, draw_parameter, draw_scatter
from lodekit.plotting.signals import (
    draw_channel,
    draw_frequency_response,
    draw_input,
    draw_modes,
    draw_residual,
    draw_spectrum,
    draw_step,
)

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
    "label_time",
    "make_panels",
    "name_with_unit",
    "read_axes",
    "to_png",
]
