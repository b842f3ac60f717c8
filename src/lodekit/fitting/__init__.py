"""Estimation of parameters and hyperparameters: the objective, starting points, and the search for its maximum.

- `settings`: the arguments of a fit.
- `setup`: engine, prior and parameter vector of a fit, before the search.
- `parameter_vector`: the unconstrained vector that is searched, and its transforms.
- `scaling`: expected magnitudes of parameters and channels.
- `objective`: the log evidence plus the log prior (MAP estimation).
- `search_options`: tuning constants of the search.
- `multistart`: the search: choice of starting points, continuation, subsampling, disturbances.
- `escape`: starting points beyond local optima, and the choice between equivalent optima.
- `output_error`: the output-error method for systems with known inputs only.
- `lbfgs`: one search with L-BFGS-B.
- `newton`: refinement by Newton's method.
- `hessian`: the observed Fisher information.
"""
