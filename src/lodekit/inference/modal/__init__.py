"""Bayesian regression on the modes of a system without free functions, in linear time (docs/modal.md).

- `engine`: the modal engine and its posterior.
"""

from lodekit.inference.modal.engine import ModalEngine

__all__ = ["ModalEngine"]
