"""Ring-down: natural frequency and damping.

An oscillator was plucked and rings down freely. 40 noisy measurements over eight seconds determine damping and
stiffness, and with them the further motion. This system has no free function: solutions differ only by their initial
state.

What to look for: the shaded part is a forecast over an equally long time. An ordinary Gaussian process would return
to zero within one period after the last point, because it contains no oscillator.
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
print(f"the band contains the truth for {100 * inside:.0f} % of the time")

figure = gp.plot(later, truth=example.solution_at, units={"t": "s", "x": "mm"})
figure.savefig("free_decay.png")
