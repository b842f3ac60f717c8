"""What is not known of a fit, as predictions show it (docs/bands.md).

`uncertainty` moves predictions with the estimates. Residuals that are correlated tell that errors are larger than
estimates say: `correlated_errors` is the arithmetic, `widening` what follows for parameters and bands. `unsteadiness`
is for errors whose size changes with time.
"""
