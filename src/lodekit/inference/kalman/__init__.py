"""The Markov engine: free functions with finitely many states, in time that grows as the data do (docs/markov.md).

The prior as a linear system: `states`, of `unit` processes, with those of disturbances (`disturbed`) and those that add
up means over intervals (`sums`); `steps` moves it. Measurements are cut into blocks by `layout`. Inside blocks
everything is dense (`inside`, of `stretches`), or filtered where blocks share nothing: side by side in `lanes` they are
`framed` on `frames`, by `taking` their measurements, or with their states, by `sweeping`. `whitening` is what all of
these come to. `between` carries states from block to block, `filtering` is both together, `evaluation` the log evidence
with its gradient.

Questions: `looking` finds states at any times, `posterior` makes observables of them, `turns` takes measurements in
their turn, `ending` is where a record ends, `online` takes one row at a time. Of rows on disk, `pieces` is the engine
and `piecewise` the posterior.
"""

from lodekit.inference.kalman.engine import KalmanEngine, KalmanFactory

__all__ = ["KalmanEngine", "KalmanFactory"]
