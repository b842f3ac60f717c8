"""Gaussian process regression in Fourier features, at a cost independent of the number of data (docs/spectral.md).

- `engine`: the spectral engine, with log evidence and gradient.
- `nodes`: sufficient statistics of the data on quadrature nodes.
- `regression`: Fourier features, and the regression on them by normal equations, QR factorization or the dual form.
- `posterior`: posterior of any observable.
"""

from lodekit.inference.spectral.engine import SpectralEngine

__all__ = ["SpectralEngine"]
