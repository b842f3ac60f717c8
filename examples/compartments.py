"""A drug in blood and tissue, from twelve blood samples.

Pharmacokinetics with few data: an infusion runs for three hours, blood is sampled twelve times over a day, and tissue
cannot be sampled at all. The dose is a known input. The measurements of blood determine all three rate constants, and
with them the amount in tissue.

What to look for: tissue is never measured, but its curve has a band, which includes the uncertainty of the rates that
were estimated from twelve samples.
"""

import numpy as np
from scipy.linalg import expm

import lodekit as lk

example = lk.catalog.compartments()
k10, k12, k21 = (float(example.values[name]) for name in ("k10", "k12", "k21"))
F = np.array([[-(k10 + k12), k21], [k12, -k21]])


def amounts(times: np.ndarray) -> np.ndarray:
    """Blood and tissue, exactly: ten units an hour for three hours from nothing, then none."""
    rest = -np.linalg.solve(F, [10.0, 0.0])
    end = rest - expm(3 * F) @ rest
    return np.array([rest - expm(s * F) @ rest if s < 3 else expm((s - 3) * F) @ end for s in times])


t = np.array([0.5, 1, 2, 3, 3.5, 4, 5, 6, 8, 12, 18, 24])
blood = amounts(t)[:, 0] * (1 + 0.03 * np.random.default_rng(2).standard_normal(12))
data = lk.Observations().add(t, "blood", blood).add([0.0, 3.0, 24.0], "dose", [10.0, 0.0, 0.0])
data = data.add([0.0], "blood", [0.0], std=0.0).add([0.0], "tissue", [0.0], std=0.0)  # exactly zero at first

gp = lk.LODEGP(example.system, inputs={"dose": "hold"}, random_state=0).fit(data)
for name, found in gp.parameters_.items():
    (low, high), truth = found.interval, float(example.values[name])
    print(f"{name} = {found.value:.3f} per hour, 95 % from {low:.3f} to {high:.3f} (truth: {truth:g})")
times = np.linspace(0, 24, 97)
tissue, std = gp.predict(times, "tissue", return_std=True)
peak = tissue.argmax()
print(f"tissue peaks {times[peak]:.1f} h after the start, at {tissue[peak]:.1f} +- {std[peak]:.1f}")

curves = {"blood": lambda s: amounts(s)[:, 0], "tissue": lambda s: amounts(s)[:, 1]}
figure = gp.plot(np.linspace(0, 24, 200), truth=curves, units={"t": "h", "blood": "mg", "tissue": "mg", "dose": "mg/h"})
figure.savefig("compartments.png")
