"""Starting points of the search, estimated from the data.

- `candidates`: collects guesses, and completes them to starting points.
- `input_output`: equations between measured observables, by elimination.
- `weak_form`: least squares of the weak form of these equations, and a scan of delays.
- `undriven`: gradient matching, and poles from damped oscillations in the data.
"""
