"""Measurements: tidy series in memory, sums over what is larger, and the files that hold them."""
