"""The Markov engine: free functions with finitely many states, in time that grows as the data do."""

from lodekit.inference.markov.engine import MarkovEngine, MarkovKind

__all__ = ["MarkovEngine", "MarkovKind"]
