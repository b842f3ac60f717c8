"""Learning: from an engine to estimates, and whether to believe them (docs/method.md, sections 5 to 7).

What is maximised: `objective`, over the vector of `transforms`, in units of `sizes`. Where searches begin: `guesses`
of the parameters, `starts` with hyperparameters beside them. The search: `learn` is all of it, `search` one of it,
`driven` and `disturbed` (with `disturbance_sizes`) where inputs or disturbances drive, `second_look` where searches end
too early, `polish` on `charts` for the last digits, `signs` among equals.

What follows (docs/bands.md): `curvature`, `estimates`, `freedom`, `profiles` on a `landscape`, `neighbours` of bounds,
`uncertainty` of predictions, `needs` for disturbances.

Whether it holds (docs/diagnosis.md, docs/validation.md): `evidence` is what is looked at, `diagnosis` what comes of it:
`residuals`, `whiteness`, `reference` (a yardstick), `verdicts` on parameters by `structure`, `motion` and `resolution`,
and `rivals`. What correlated residuals do: `correlated_errors`, `widening`, `unsteadiness`. In words: `sentences`,
`findings`, `summary`, and warnings about `steps` and `scarcity`.
"""
