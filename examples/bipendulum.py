"""Two pendulums on one rod.

The running example of the paper: two pendulums of lengths 1 and 2 hang from one rod, and whoever accelerates the rod
moves both. Equations for small angles are linear. Here 25 noisy measurements of both angles are given, and the
acceleration u of the rod is never measured: the equations know it.

What to see: u is an answer, with a band. So is everything else that is linear in the channels and their derivatives,
beyond the data as well: the prior is one on the channels, which goes back to rest quietly where nothing was measured.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.bipendulum(1, 2)
print(example.system.explain())

# 25 measurements of each angle, noise of 0.012, as in the paper
t = np.linspace(1, 6, 25)
angles = example.solution_at(t)[:, :2] + 0.012 * np.random.default_rng(0).standard_normal((25, 2))
gp = lk.LODEGP(example.system, prior="channels", random_state=0).fit(t, {"f1": angles[:, 0], "f2": angles[:, 1]})

# the truth is known here: how far off are the curves?
inside = np.linspace(1.25, 5.75, 200)
error = gp.predict(inside) - example.solution_at(inside)
for name, off in zip(example.system.channels, np.sqrt(np.mean(error**2, axis=0)), strict=True):
    print(f"{name}: off by {off:.4f} in the mean square")
print("equations hold to 1e-6 of their terms:", gp.certificate().residual < 1e-6)

figure = gp.plot(np.linspace(1, 7, 300), truth=example.solution_at, units={"t": "s", "f1": "rad", "f2": "rad"})
figure.savefig("bipendulum.png")
