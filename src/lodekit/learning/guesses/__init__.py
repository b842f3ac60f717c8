"""Start values of the parameters: from the data, in several ways that fail in different places (docs/fitting.md).

`gather` asks all of them. `implied` has the equations between what was measured, which `weak` integrates, `smoothed`
fits derivatives to and `delays` scans dead times of; `decays` looks for oscillations, `simulated` follows simulations.
"""
