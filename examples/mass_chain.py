"""A chain of masses, measured at its ends.

Four masses between springs, with an unmeasured force on the first one. Only the first and the last mass have a
sensor. The equations determine the two masses in between and the force.

What to look for: one free function drives everything, so two sensors are more than enough: with one, only initial
states would remain undetermined.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.mass_chain(4)
print(example.system.explain())

t = np.linspace(0, 20, 50)
exact = example.solution_at(t)
noise = 0.1 * np.random.default_rng(0).standard_normal((50, 2))
gp = lk.LODEGP(example.system, random_state=0).fit(
    t, {"x1": exact[:, 0] + noise[:, 0], "x4": exact[:, 3] + noise[:, 1]}
)

mean, std = gp.predict(t, return_std=True)
for j, name in enumerate(example.system.channels):
    seen = "measured" if name in ("x1", "x4") else "never measured"
    off = np.sqrt(np.mean((mean - exact)[:, j] ** 2))
    print(f"{name}: RMS error {off:.4f}, predicted {np.sqrt(np.mean(std[:, j] ** 2)):.4f} ({seen})")

figure = gp.plot(np.linspace(0, 20, 300), truth=example.solution_at)
figure.savefig("mass_chain.png")
