"""The Gaussian process, as closed formulas on arrays."""
