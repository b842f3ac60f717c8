"""The modal engine: no free functions, so that the data are known functions, a few modes and noise (docs/modal.md).

`data` holds measurements and finds modes at them from few nodes, `evaluation` is the regression with its gradient,
`posterior` answers questions.
"""

from lodekit.inference.modal.engine import ModalEngine, ModalFactory

__all__ = ["ModalEngine", "ModalFactory"]
