"""Uncertainty of estimates and predictions.

- `estimates`: standard errors and intervals of parameters.
- `laplace`: Laplace approximation of everything that was estimated.
- `sandwich`: sandwich estimator under autocorrelated residuals.
- `variance_tests`: tests of disturbance variances.
- `forecast_errors`: bands that follow errors of time-varying variance.
"""
