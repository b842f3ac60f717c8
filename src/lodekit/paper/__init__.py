"""The experiments of the paper with the public interface, and their results beside the published ones (published.json).

- `experiments`: systems and data.
- `methods`: four methods to train a model on these data.
- `metrics`: errors of a trained model, cost of the construction, comparison with Groebner bases.
- `model_comparison`: log evidence of wrong systems, and the latent force model of the appendix.
- `runner`: all runs, each stored in a file.
- `claims`: medians and ratios of their results, and statements about them.
- `report`: tables, figures and the report, with the texts of report.toml.
"""
