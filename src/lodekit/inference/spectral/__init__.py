"""The spectral engine: the log evidence on waves, from sums over the data (docs/spectral.md).

`nodes` turns measurements, or sums over them, into weights on nodes; `waves` and `grams` make waves there and their
products, which a `workspace` keeps. `evaluation` puts a regression together, which `regression` solves, or `roots`
where noise is low; `posterior` answers questions. `functions` holds modes and means on nodes, `batch` does many at
once.
"""

from lodekit.inference.spectral.engine import SpectralEngine, SpectralFactory

__all__ = ["SpectralEngine", "SpectralFactory"]
