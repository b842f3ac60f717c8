"""The dense engine: the exact log evidence by Cholesky."""

from lodekit.inference.dense.engine import DenseEngine, DenseKind

__all__ = ["DenseEngine", "DenseKind"]
