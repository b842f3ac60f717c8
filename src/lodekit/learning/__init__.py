"""Learning: from an engine to estimates, and whether to believe them (docs/method.md, sections 5 to 7).

What everybody here speaks of stands at the door: `objective` is what is maximised, over the vector of `transforms`, in
units of `sizes`; `gaps` are those between times. At the optimum, `curvature` gives the errors of `estimates`, `freedom`
says how well these errors are known, and `needs` whether disturbances are needed at all.

The rooms, in the order in which a fit passes them: `guesses` of the parameters from the data, `searches` that begin
there, `identifiability` (which parameters the data tell), `diagnosis` (whether the fit holds), `bands` (what is unknown
of the estimates, as predictions show it), and `messages`, in which all of it is said.
"""
