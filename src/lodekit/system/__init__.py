"""Systems of linear ODEs: from text or matrices to a ``System``, its analysis and its display.

- `grammar`: parser and expression trees.
- `parameters`: parameters, priors, and checks of names.
- `signals`: exponential polynomials, linear forms and particular solutions.
- `delays`: dead time (delay) of inputs.
- `linear`: linear forms from expression trees.
- `matrices`: operator matrices, state spaces and bases as input.
- `state_space`: exact state-space models and transfer functions.
- `analysis`: modes and the symbolic prior covariance.
- `dimensions`: dimensional analysis and unit checks.
- `structural_identifiability`: parameters that ideal measurements determine.
- `display`: sentences, text, LaTeX and MathML.
- `system`: the class ``System``.
- `files`: system files in TOML.
- `catalog`: example systems with known solutions.
"""
