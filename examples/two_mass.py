"""Input estimation: an unmeasured force.

Two masses are connected by two springs; a force F pulls the second one. Masses and stiffnesses are known by design,
both positions are measured, and the force is unknown. It is a free function of the system: it is never measured, but
estimated with a band.

What to look for: F contains the fourth derivative of x1 (or the second of x2), so its band is wider than those of the
positions. It is widest at the ends, where there are data on one side only.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.two_mass()
print(example.system.explain().splitlines()[0])

t = np.linspace(0, 20, 60)
exact = example.solution_at(t)
seen = exact[:, :2] + 0.1 * np.random.default_rng(0).standard_normal((60, 2))
gp = lk.LODEGP(example.system.substitute(example.values), random_state=0).fit(t, {"x1": seen[:, 0], "x2": seen[:, 1]})

force, std = gp.predict(t, "F", return_std=True)
print(f"F ranges from {exact[:, 2].min():.1f} to {exact[:, 2].max():.1f}")
print(f"RMS error {np.sqrt(np.mean((force - exact[:, 2]) ** 2)):.2f}, predicted {np.sqrt(np.mean(std**2)):.2f}")
inner = slice(6, -6)
print(f"RMS error away from the ends: {np.sqrt(np.mean((force - exact[:, 2])[inner] ** 2)):.3f}")

figure = gp.plot(np.linspace(0, 20, 300), truth=example.solution_at, units={"t": "s", "x1": "m", "x2": "m", "F": "N"})
figure.savefig("two_mass.png")
