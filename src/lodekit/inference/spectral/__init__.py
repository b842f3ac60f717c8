"""The spectral engine: the log evidence on waves, from sums over the data."""

from lodekit.inference.spectral.engine import SpectralEngine, SpectralKind

__all__ = ["SpectralEngine", "SpectralKind"]
