"""The experiments of the paper with the public interface, and their results beside the published ones (published.json).

- `experiments`: systems and data.
- `methods`: four methods to train a model on these data.
- `metrics`: errors of a trained model, cost of the construction, comparison with Groebner bases.
- `model_comparison`: log evidence of wrong systems, and the latent force model of the appendix.
- `runner`: all runs, each stored in a file; `results`: their medians and ratios.
- `tables`, `figures`, `claims`: the content of the report; `report`: the report, with the texts of report.toml.
"""
