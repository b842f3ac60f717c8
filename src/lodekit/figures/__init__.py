"""The figures of a fit; each is returned, and drawn on ``axes`` where these are given (docs/plots.md).

`requests` reads what is asked for, in one way for all of them; `curves`, `evidence` and `dynamics` ask the fit for
values, which `lodekit.plotting` draws.
"""

from lodekit.figures.curves import plot, plot_modes, plot_residual, plot_spectrum
from lodekit.figures.dynamics import plot_bode, plot_residuals, plot_step
from lodekit.figures.evidence import plot_evidence, plot_parameters

__all__ = [
    "plot",
    "plot_bode",
    "plot_evidence",
    "plot_modes",
    "plot_parameters",
    "plot_residual",
    "plot_residuals",
    "plot_spectrum",
    "plot_step",
]
