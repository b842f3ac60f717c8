"""A fitted system as engineers know it: state space, transfer functions, poles, zeros, gains, and their errors."""

from lodekit.plant.grids import find_band, frequency_grid, step_grid
from lodekit.plant.space import FittedStateSpace, state_space, transfer_function
from lodekit.plant.transfer import TransferFunction
from lodekit.plant.uncertain import Uncertain

__all__ = [
    "FittedStateSpace",
    "TransferFunction",
    "Uncertain",
    "find_band",
    "frequency_grid",
    "state_space",
    "step_grid",
    "transfer_function",
]
