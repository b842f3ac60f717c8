"""A mass on a spring, and its velocity.

Position x and force F are measured at 40 times; the mass was weighed (m = 1). Damping c and stiffness k are learned. The velocity
was never measured, and nothing is differentiated numerically: x' is a linear function of the same Gaussian process.

What to see: the band of x' is narrow, because x has to satisfy the equation and not only to pass through points. With an unknown m
the fit would say that these data cannot tell m, c and k apart: this motion is one damped sine, and any multiple fits.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.spring_mass_damper()
rates = {"m": lk.Parameter(fixed=1), "c": lk.Parameter(positive=True), "k": lk.Parameter(positive=True)}
system = lk.System(example.system.equations, parameters=rates)

t = np.linspace(0, 8, 40)
Y = example.solution_at(t) * (1 + 0 * t[:, None]) + [0.02, 0.05] * np.random.default_rng(0).standard_normal((40, 2))
gp = lk.LODEGP(system, random_state=0).fit(t, Y)

for name in ("c", "k"):
    found = gp.parameters_[name]
    print(f"{name} = {found.value:.2f} +- {found.std_error:.2f} (truth: {float(example.values[name]):g})")
fine = np.linspace(0, 8, 400)
velocity = np.gradient(example.solution_at(fine)[:, 0], fine)
mean, std = gp.predict(fine, "x'", return_std=True)
print(f"velocity: off by {np.sqrt(np.mean((mean - velocity) ** 2)):.3f}, says {np.sqrt(np.mean(std**2)):.3f}")

x, F = (lambda s, j=j: example.solution_at(s)[:, j] for j in range(2))
truth = {"x": x, "x'": lambda s: np.gradient(x(s), s), "F": F}
figure = gp.plot(observable=["x", "x'", "F"], truth=truth, units={"t": "s", "x": "m", "x'": "m/s", "F": "N"})
figure.savefig("spring_mass_damper.png")
