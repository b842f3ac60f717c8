"""Two pendulums on one rod.

This is the running example of the paper: two pendulums of lengths 1 and 2 hang from one rod, and accelerating the rod
moves both. For small angles the equations are linear. The data are 25 noisy measurements of both angles; the
acceleration u of the rod is never measured, but follows from the equations.

What to look for: u is estimated, with a band. So is every other linear expression in the channels and their
derivatives, also beyond the data: this fit uses a prior on the channels, which returns smoothly to rest if there
are no measurements.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.bipendulum(1, 2)
print(example.system.explain())

# 25 measurements of each angle, noise of 0.012, as in the paper
t = np.linspace(1, 6, 25)
angles = example.solution_at(t)[:, :2] + 0.012 * np.random.default_rng(0).standard_normal((25, 2))
gp = lk.LODEGP(example.system, prior="channels", random_state=0).fit(t, {"f1": angles[:, 0], "f2": angles[:, 1]})

# the truth is known here, so the error of the curves can be computed
inside = np.linspace(1.25, 5.75, 200)
error = gp.predict(inside) - example.solution_at(inside)
for name, off in zip(example.system.channels, np.sqrt(np.mean(error**2, axis=0)), strict=True):
    print(f"{name}: RMS error {off:.4f}")
print(f"residual of the equations, relative to the terms: {gp.certificate().residual:.6f}")

figure = gp.plot(np.linspace(1, 7, 300), truth=example.solution_at, units={"t": "s", "f1": "rad", "f2": "rad"})
figure.savefig("bipendulum.png")
