"""The modal engine: no free functions, so that the data are known functions, a few modes and noise."""

from lodekit.inference.modal.engine import ModalEngine, ModalKind

__all__ = ["ModalEngine", "ModalKind"]
