"""The search for an optimum (docs/fitting.md).

`learn` is all of it: `starts` from the user, from the guesses and blind ones, one `search` from each, `second_look`
where searches are known to end too early. `driven` and `disturbed` (with `disturbance_sizes`) are the ways where inputs
or disturbances drive. Afterwards: `polish` on `charts` for the last digits, `signs` among optima that are equals.
"""
