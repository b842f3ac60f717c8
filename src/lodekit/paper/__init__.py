"""The experiments of the paper on the public interface, and their results beside the published ones (published.json).

- `experiments`: systems and data.
- `methods`: four ways to train a model on them.
- `metrics`: errors of a trained model, cost of the construction, comparison with Groebner bases.
- `model_comparison`: log evidence of wrong systems, and the latent force model of the appendix.
- `runner`: all runs, each kept in a file; `results`: medians and ratios of them.
- `tables`, `figures`, `claims`: what the report shows; `report`: the report itself, with the texts of report.toml.
"""
