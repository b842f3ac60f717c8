"""An inverted pendulum on a cart, measured by a camera.

A pendulum stands upright on a cart that is pushed to and fro. A camera measures the position x of the cart and the
angle phi. The masses are known; the length l of the pendulum and the force F are not.

What to look for: the system is unstable, and the fit works nevertheless. Nothing is integrated forward in time; the
prior contains complete solutions.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.cart_pendulum()
parts = {"M": lk.Parameter(fixed=1), "m": lk.Parameter(fixed=0.2), "l": lk.Parameter(positive=True)}
system = lk.System(example.system.equations, parameters=parts, channels=["x", "phi", "F"])
print(system.explain())

t = np.linspace(0, 12, 60)
exact = example.solution_at(t)
seen = exact[:, :2] + [0.02, 0.002] * np.random.default_rng(0).standard_normal((60, 2))
gp = lk.LODEGP(system, random_state=0).fit(t, {"x": seen[:, 0], "phi": seen[:, 1]})

length = gp.parameters_["l"]
print(f"l = {length.value:.2f} m, 95 % from {length.interval[0]:.2f} to {length.interval[1]:.2f} (truth: 0.5 m)")
force, std = gp.predict(t, "F", return_std=True)
off = np.sqrt(np.mean((force - exact[:, 2]) ** 2))
print(f"F: RMS error {off:.4f} N of {np.abs(exact[:, 2]).max():.2f} N, predicted {np.sqrt(np.mean(std**2)):.4f} N")

figure = gp.plot(np.linspace(0, 12, 300), truth=example.solution_at, units={"t": "s", "x": "m", "phi": "rad", "F": "N"})
figure.savefig("cart_pendulum.png")
