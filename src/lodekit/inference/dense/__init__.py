"""The dense engine: the exact log evidence by Cholesky (docs/dense.md).

`data` holds the measurements; `stacks` makes their covariance, which `evidence` factorizes and differentiates;
`accuracy` says what rounding does to that. `posterior` answers questions, and `channels` those of the channel prior.
`device` is `evidence` on an accelerator, `innovations` takes measurements in their turn, `blocks` cuts matrices up.
"""

from lodekit.inference.dense.engine import DenseEngine, DenseFactory

__all__ = ["DenseEngine", "DenseFactory"]
