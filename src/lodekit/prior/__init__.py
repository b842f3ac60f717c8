"""The Gaussian process, as closed formulas on arrays: section 4 of the paper, 3 of docs/method.md.

Read `prior` first: all that engines ask for. Its parts: `observables` (texts become coefficients on free functions and
modes, by `compile`, the one place where exact becomes float), `latents` and `families` (covariances of free functions),
`covariance` (of any two observables), `modes` with `basis` and `flows`, `means` (known functions of time) and
`hyperparameters`.

Where inputs are known: `driven`, on `responses`, `relayed` for records in pieces, and `open_modes` for initial states.
Where disturbances drive: `disturbed`. In frequency: `points`, `spectra`, and for the channel prior `conditioned`,
`channel_spectrum`, `panels`, `gauss` and `lags`. Averages over intervals: `averages` and `windows`. `draws`,
`densities` and `equations` are what is asked of a prior beside its covariance; `arrays` makes constants for any array
library, and `chebyshev` holds the series by which steps of `responses` and covariances of `lags` are interpolated.
"""
