"""The version of this package, in a file that imports nothing, so that every floor may name it."""

__version__ = "0.1.0"
