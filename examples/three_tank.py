"""Three tanks, two pumps, and a level that is measured once.

Two pumps fill three tanks. No pump can change f1 - f2 + f3: the system is not controllable, which a Gaussian process
model written by hand has to take into account. Here both pumps are metered and two tanks are measured 25 times, with
noise; the level of the third tank was measured a single time.

What to look for: the equations and that one measurement determine the whole curve of f3. Without it, the height of
the curve would be unknown.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.three_tank()
print(example.system.explain())

t = np.linspace(1, 6, 25)
noise = np.random.default_rng(1)
f1, f2, f3, u1, u2 = (example.solution_at(t) + 0.03 * noise.standard_normal((25, 5))).T
data = lk.Observations().add(t, "f1", f1).add(t, "f2", f2).add(t, "u1", u1).add(t, "u2", u2)
data = data.add([t[8]], "f3", [f3[8]], std=0.03)

gp = lk.LODEGP(example.system, noise="shared", random_state=0).fit(data)
for when in (1.0, 6.0):
    mean, std = gp.predict([when], "f3", return_std=True)
    print(f"f3 at t = {when:g}: {mean[0]:.3f} +- {std[0]:.3f} (truth: {example.solution_at([when])[0, 2]:.3f})")
# the mean standard deviation of each level over all 25 times
for name, known in zip(("f1", "f2", "f3"), gp.predict(t, ["f1", "f2", "f3"], return_std=True)[1].T, strict=True):
    print(f"{name}: standard deviation {known.mean():.3f} (noise of one measurement: 0.03)")

figure = gp.plot(observable=["f1", "f2", "f3"], truth=example.solution_at)
figure.savefig("three_tank.png")
