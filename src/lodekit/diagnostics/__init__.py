"""Diagnosis of a fit: how well it describes the data, and which parameters the data identify.

- `diagnosis`: the whole diagnosis of a fit.
- `residual_tests`: whiteness (Ljung-Box test, cumulative periodogram), input correlation, outliers.
- `validation_tests`: the same tests on a record that the fit did not use.
- `identifiability`: structural identifiability, excitation and intervals of parameters.
- `profile_likelihood`: profile likelihood of parameters.
- `equivalent_parameters`: other parameter values that fit about as well.
- `messages`: all user-facing sentences.
"""
