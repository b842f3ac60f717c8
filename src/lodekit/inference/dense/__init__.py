"""Exact Gaussian process regression by Cholesky factorization of the data covariance (docs/dense.md).

- `engine`: the dense engine: Cholesky factorization, gradient and innovations.
- `evidence`: the covariance matrix of the data; formulas of the log evidence, its gradient and its rounding error.
- `torch_evidence`: the same evidence on a PyTorch device.
- `posterior`: posterior of any observable, also under the channel prior.
"""

from lodekit.inference.dense.engine import DenseEngine

__all__ = ["DenseEngine"]
