"""Whether a fit holds (docs/diagnosis.md, docs/validation.md).

`examined` is what is looked at, `diagnosis` what comes of it: the `remainder` of the measurements, what its `residuals`
say, their `whiteness` and `outliers`, a `reference` that obeys no equation as a yardstick, and `resolution`, whether
measurements tell what happens between them. `held_out` asks the same of a record that the fit has not seen.
"""
