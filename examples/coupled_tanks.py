"""Two tanks and a step of the pump.

A pump fills a tank that drains through a pipe into a second one, which drains freely. This is a step test: the pump
runs at one level, then at another, then at the first again. Both levels are recorded once a second, and the second
gauge failed for a while.

What to look for: missing values are NaN and need no special treatment. While the gauge failed, the equations still
determine the curve.
"""

import numpy as np
from scipy.signal import cont2discrete

import lodekit as lk

example = lk.catalog.coupled_tanks()
plant = example.system.substitute(example.values).state_space(inputs=["q"])
A, B, C, D = (np.array(matrix.tolist(), dtype=float) for matrix in (plant.A, plant.B, plant.C, plant.D))
F, G, *_ = cont2discrete((A, B, C, D), 1.0)

t, noise = np.arange(90.0), np.random.default_rng(0)
q = np.repeat([1.0, 2.0, 1.0], 30)
states = [np.zeros(2)]
for held in q[:-1]:
    states.append(F @ states[-1] + G[:, 0] * held)
h1, h2 = (np.array(states) @ C.T + 0.2 * noise.standard_normal((90, 2))).T
h2[35:55] = np.nan

gp = lk.LODEGP(example.system, inputs={"q": "hold"}, random_state=0).fit(t, {"h1": h1, "h2": h2, "q": q})
for name, found in gp.parameters_.items():
    print(f"{name} = {found.value:.3f} +- {found.std_error:.3f} (truth: {float(example.values[name]):g})")
print(gp.diagnose().sentences[0])
high = gp.simulate([0.0, 60.0], {"q": 3.0}, observable="h2", return_std=True)
print(f"with q = 3 for a minute, h2 reaches {high[0][1]:.2f} +- {high[1][1]:.2f} (truth: 10)")

figure = gp.plot(units={"t": "s", "h1": "dm", "h2": "dm", "q": "l/s"})
figure.savefig("coupled_tanks.png")
