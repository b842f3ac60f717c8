"""What users read of a fit.

`sentences` are warnings and hyperparameters by name, `findings` what residuals say for people and programs, `summary`
a table in the style of statistics packages. `steps` and `scarcity` warn of data that jump or tell little, `slips` of
names that nobody measured.
"""
