"""An RLC circuit and its unmeasured charge.

Resistor, coil and capacitor are in series. An oscilloscope records voltage V and current i, but not the charge q of
the capacitor. The inductance of the coil is known; resistance and capacitance are estimated.

What to look for: q' = i determines the charge only up to a constant. The second equation determines this constant,
because the voltage across the capacitor is q/C.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.rlc_circuit()
parts = {"L": lk.Parameter(fixed=0.5), "R": lk.Parameter(positive=True), "C": lk.Parameter(positive=True)}
system = lk.System(example.system.equations, parameters=parts)

t = np.linspace(0, 4, 40)
exact = dict(zip(system.channels, example.solution_at(t).T, strict=True))
noise = np.random.default_rng(0)
seen = {name: exact[name] + 0.01 * noise.standard_normal(40) for name in ("i", "V")}
gp = lk.LODEGP(system, random_state=0).fit(t, seen)

for name in ("R", "C"):
    found = gp.parameters_[name]
    print(f"{name} = {found.value:.3f} +- {found.std_error:.3f} (truth: {float(example.values[name]):g})")
charge, std = gp.predict(t, "q", return_std=True)
print(f"q: RMS error {np.sqrt(np.mean((charge - exact['q']) ** 2)):.4f}, predicted {np.sqrt(np.mean(std**2)):.4f}")

figure = gp.plot(truth=example.solution_at, units={"t": "s", "q": "C", "i": "A", "V": "V"})
figure.savefig("rlc_circuit.png")
