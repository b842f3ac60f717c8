"""A heater and the object that it heats.

A heating element f1 is driven by u and exchanges heat with an object f2, at unknown rates a and b. 25 noisy
measurements of all three channels determine the curves, the rates with intervals, and the noise of each channel. This
is the paper's example of unknown parameters; the true values are a = 3 and b = 1.

What to look for: how well the data determine each rate. The curve is the log evidence as a function of one parameter,
with everything else estimated again, compared with the normal approximation on which the 95 % interval is based. The
true value is inside both intervals.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.heating()
t = np.linspace(-5, 5, 25)
Y = example.solution_at(t) + 0.02 * np.random.default_rng(0).standard_normal((25, 3))
gp = lk.LODEGP(example.system, random_state=0).fit(t, Y)

for name, found in gp.parameters_.items():
    low, high = found.interval
    print(f"{name} = {found.value:.3f}, 95 % from {low:.3f} to {high:.3f} (truth: {float(example.values[name]):g})")
for name, level in gp.noise_.items():
    print(f"noise of {name}: {level:.3f} (truth: 0.02)")

figure = gp.plot_parameters(truth=example.values, others="relearned")
figure.savefig("heating.png")
