"""Ring-down: a frequency and a damping.

Something was plucked and rings down by itself. 40 noisy readings over eight seconds tell damping and stiffness, and
with them how it goes on. There is no free function in this system: all that can differ from one solution to another
is the initial state.

What to see: the shaded part is a forecast over as long a time again. An ordinary Gaussian process would return to
zero within a period after the last point, because it does not know that things ring.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.free_decay()
t = np.linspace(0, 8, 40)
x = example.solution_at(t)[:, 0] + 0.1 * np.random.default_rng(3).standard_normal(40)
gp = lk.LODEGP(example.system, random_state=0).fit(t, x)

print(example.system.explain().splitlines()[0])
for name, found in gp.parameters_.items():
    low, high = found.interval
    print(f"{name} = {found.value:.3f}, 95 % from {low:.3f} to {high:.3f} (truth: {float(example.values[name]):g})")
c, k = (gp.parameters_[name].value for name in "ck")
print(f"period {2 * np.pi / np.sqrt(k - c**2 / 4):.3f} s, damping ratio {c / (2 * np.sqrt(k)):.3f}")

later = np.linspace(0, 16, 400)
mean, std = gp.predict(later, "x", return_std=True)
inside = np.mean(np.abs(mean - example.solution_at(later)[:, 0]) < 1.96 * std)
print(f"the band holds the truth over {100 * inside:.0f} % of the time")

figure = gp.plot(later, truth=example.solution_at, units={"t": "s", "x": "mm"})
figure.savefig("free_decay.png")
