"""Results of a fit: predictions, validation, tables, figures and storage.

- `fit`: the fit itself.
- ``prediction``, ``forecast``, ``simulation``: predictions, k-step predictions, responses to new inputs.
- ``summary``, ``residuals``, ``figures``: tables, residuals and plots.
- `validation`: performance on other records.
- ``certificate``, ``equation_residuals``: how well the curves satisfy the equations.
- `state_space`: state space, transfer function, poles and zeros with standard errors.
- `experiment_design`: standard errors of planned experiments.
- `storage`: saved fits.
- `stream`: online filtering with alarms.
"""
