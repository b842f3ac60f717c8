"""The Gaussian process prior, as closed formulas on arrays: section 4 of the paper, section 3 of docs/method.md.

- `prior`: hyperparameters, and the prior of the data; start here.
- `observables`: observables from texts to coefficients, basis functions and means.
- `compile`: conversion of exact coefficients to floats, with derivatives in the parameters.
- `kernels`: covariances of the free functions, also averaged over intervals.
- `covariance`: covariance of any two observables.
- `modes`, `diffuse_modes`: basis functions of the modes; diffuse initial states with the REML correction.
- `expm`, `linear_recurrence`: matrix exponential with its Frechet derivative; linear recurrences over many rows.
- `input_response`, `disturbances`: known inputs as a prior mean; random inputs as a state space.
- `spectra`, `channel_prior`: the prior in frequency; the prior on channels.
- `draws`: samples from the prior.
"""
