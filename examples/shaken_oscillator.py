"""An oscillator with a known force.

The right-hand side of an equation may contain known functions of time: here sin(3 t) drives an oscillator that is
already moving. It was measured only from t = 4 to 9. These data determine damping and stiffness, and the motion
before and after.

What to look for: curves before the data are as exact as those after them. The initial motion is poorly determined,
because it had nearly decayed when the measurements began: there the band becomes wide.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.shaken_oscillator()
print(", ".join(example.system.equations))

t = np.linspace(4, 9, 30)
x = example.solution_at(t)[:, 0] + 0.01 * np.random.default_rng(0).standard_normal(30)
gp = lk.LODEGP(example.system, random_state=0).fit(t, x)

for name, found in gp.parameters_.items():
    print(f"{name} = {found.value:.2f} +- {found.std_error:.2f} (truth: {float(example.values[name]):g})")
for when in (0.0, 6.0, 14.0):
    mean, std = gp.predict([when], "x", return_std=True)
    print(f"x({when:g}) = {mean[0]:.2f} +- {std[0]:.2f} (truth: {example.solution_at([when])[0, 0]:.2f})")

figure = gp.plot(np.linspace(0, 14, 400), truth=example.solution_at, units={"t": "s", "x": "cm"})
figure.savefig("shaken_oscillator.png")
