"""Log evidence with its gradient, and posterior, by four engines that agree (docs/method.md).

- `engine`: the protocols of engines and posteriors; read this first.
- `selection`: the list of engines, and the choice of the fastest that accepts a task.
- `fallback`: a second engine if the rounding error of the first is too large.
- `multi_record`: the joint likelihood of several records.
- `innovations`: innovations and forecast errors.
- `stacked_measurements`: measurements in memory with their prior.
- `dense`, `spectral`, `modal`, `kalman`: the engines (docs/dense.md, spectral.md, modal.md, markov.md).
"""
