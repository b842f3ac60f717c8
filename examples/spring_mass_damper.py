"""A mass on a spring, and its velocity.

Position x and force F are measured at 40 times; the mass is known (m = 1). Damping c and stiffness k are estimated.
The velocity is never measured, and nothing is differentiated numerically: x' is a linear function of the same
Gaussian process.

What to look for: the band of x' is narrow, because x has to satisfy the equation and not only to pass through the
points. With an unknown m the fit would report that these data do not identify m, c and k separately: this motion is
one damped sine, which also satisfies such an equation without a force, and any multiple of that can be added.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.spring_mass_damper()
rates = {"m": lk.Parameter(fixed=1), "c": lk.Parameter(positive=True), "k": lk.Parameter(positive=True)}
system = lk.System(example.system.equations, parameters=rates)


def velocity(times: np.ndarray) -> np.ndarray:
    """The derivative of the solution in the catalog, exp(-t/5) sin(t)."""
    return np.exp(-times / 5) * (np.cos(times) - np.sin(times) / 5)


t = np.linspace(0, 8, 40)
Y = example.solution_at(t) + [0.05, 0.1] * np.random.default_rng(0).standard_normal((40, 2))
gp = lk.LODEGP(system, random_state=0).fit(t, Y)

for name in ("c", "k"):
    found = gp.parameters_[name]
    print(f"{name} = {found.value:.2f} +- {found.std_error:.2f} (truth: {float(example.values[name]):g})")
fine = np.linspace(0, 8, 400)
mean, std = gp.predict(fine, "x'", return_std=True)
error = np.sqrt(np.mean((mean - velocity(fine)) ** 2))
print(f"velocity: RMS error {error:.3f}, predicted {np.sqrt(np.mean(std**2)):.3f}")

truth = {"x": lambda s: example.solution_at(s)[:, 0], "x'": velocity, "F": lambda s: example.solution_at(s)[:, 1]}
figure = gp.plot(observable=["x", "x'", "F"], truth=truth, units={"t": "s", "x": "m", "x'": "m/s", "F": "N"})
figure.savefig("spring_mass_damper.png")
