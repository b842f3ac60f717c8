"""A quarter car on a test rig.

A quarter-car model has the body zs, the wheel zu and the road zr. On the rig a hydraulic plate replaces the road, and
its height is known. The car has an accelerometer on its body (zs'') and a sensor for the travel of its spring (zs -
zu); no channel is measured directly. The mass of the body is known. Spring, damper, tyre and the mass of the wheel
are estimated.

What to look for: any linear expression in channels and derivatives can be measured. The heights, for which there is
no sensor, are estimated as well.
"""

import numpy as np
from scipy.signal import lsim

import lodekit as lk

example = lk.catalog.quarter_car()
ms, mu, ks, cs, kt = (float(example.values[name]) for name in ("ms", "mu", "ks", "cs", "kt"))
parts = dict.fromkeys(("mu", "ks", "cs", "kt"), lk.Parameter(positive=True))
system = lk.System(example.system.equations, parameters={"ms": lk.Parameter(fixed=ms), **parts})

# three seconds on the rig, 200 samples a second; the height of the plate is linear between random values
t, noise = np.arange(600) / 200, np.random.default_rng(0)
zr = np.interp(t, np.arange(0, 3.2, 0.2), np.append(0, noise.uniform(-3, 3, 15)))
rates = [
    [0, 1, 0, 0],
    [-ks / ms, -cs / ms, ks / ms, cs / ms],
    [0, 0, 0, 1],
    [ks / mu, cs / mu, -(ks + kt) / mu, -cs / mu],
]
plate = [[0], [0], [0], [kt / mu]]
_, states, _ = lsim((rates, plate, np.eye(4), np.zeros((4, 1))), zr, t)
seen = {
    "zr": zr,
    "zs''": states @ rates[1] + 20 * noise.standard_normal(600),
    "zs - zu": states @ [1, 0, -1, 0] + 0.1 * noise.standard_normal(600),
}
gp = lk.LODEGP(system, inputs={"zr": "linear"}, random_state=0).fit(t, seen)

for name, unit in (("mu", "kg"), ("ks", "N/m"), ("cs", "N s/m"), ("kt", "N/m")):
    found = gp.parameters_[name]
    print(f"{name} = {found.value:.4g} +- {found.std_error:.2g} {unit} (truth: {float(example.values[name]):g})")
wheel = gp.predict(t, "zu")
print(f"height of the wheel: RMS error {np.sqrt(np.mean((wheel - states[:, 2]) ** 2)):.3f} cm")

units = {"t": "s", "zr": "cm", "zs''": "cm/s2", "zs - zu": "cm", "zu": "cm"}
truth = {"zu": np.interp(np.linspace(0, t[-1], 500), t, states[:, 2])}
figure = gp.plot(np.linspace(0, t[-1], 500), observable=["zr", "zs''", "zs - zu", "zu"], truth=truth, units=units)
figure.savefig("quarter_car.png")
