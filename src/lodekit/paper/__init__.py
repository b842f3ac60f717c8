"""The experiments of the paper, on the public interface, and what came of them beside what was published.

`experiments` are systems and data, `methods` the ways to train on them, `measures` what is measured on a trained model.
Beside these: `latent_force` (the appendix), `construction` and `groebner` (what it takes before any data), `evidence`
(which system the data follow). `runner` makes all runs and keeps each in a file; `results` reads them, `tables`,
`hyperparameters` and `figures` show them, `claims` says what they bear out by the tests of `verdicts`, and `report`
writes it all down. What the paper printed is in published.json.
"""
