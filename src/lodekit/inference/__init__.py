"""Evidence with its gradient, and the posterior, by four engines: docs/method.md has the one number that all compute.

Read `engine` first: what an engine is, as protocols. `choice` is the only list of engines, and takes the cheapest that
does not refuse. `dense` is the textbook's (docs/dense.md) and the easiest to follow; `spectral` (docs/spectral.md),
`modal` (docs/modal.md) and `markov` (docs/markov.md) use structure that it does not see.

What they share: `measured` holds measurements in memory, `records` adds up engines of several records, `accurate` asks
a second engine where the first one loses digits, `turns` says what measurements in their turn are and `innovations`
makes them, `devices` finds a place for PyTorch to compute.
"""
