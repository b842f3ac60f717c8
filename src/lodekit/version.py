"""The version of this package, in a file that imports nothing, so that every floor may name it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
