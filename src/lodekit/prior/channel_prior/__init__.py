"""The channel prior: independent squared-exponential processes on the channels, conditioned on the equations.

- `spectral_density`: the spectral density of the conditioned channels and free functions.
- `quadrature`: Gauss-Legendre panels and block-Lanczos Gauss rules in frequency.
- `channel_spectrum`: the prior as a sum of waves, for the spectral engine.
- `lag_covariance`: the covariance over all pairs of times, for the dense engine.
"""
