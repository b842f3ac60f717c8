"""Two rooms, one of them unmeasured.

A heater warms one room; the room behind it has no thermometer, and the outside temperature was not recorded.
Temperature and heating of the first room are measured. The exchange between the rooms and the outside temperature are
estimated.

What to look for: the temperature of the hidden room is estimated to within a few tenths of a degree. Losses to the
outside are known here; if they were unknown as well, the data of one room would not identify all parameters, and the
summary would list those that are not identified.
"""

import numpy as np

import lodekit as lk

example = lk.catalog.two_room()
system = lk.System(
    example.system.equations,
    parameters={
        "a": lk.Parameter(positive=True),  # exchange between the rooms
        "b": lk.Parameter(fixed=0.1),  # losses to the outside
        "c": lk.Parameter(fixed=0.2),
        "Ta": lk.Parameter(),  # the outside
    },
)
t = np.linspace(0, 60, 80)
exact = example.solution_at(t)
noise = np.random.default_rng(0)
seen = {name: exact[:, j] + 0.1 * noise.standard_normal(80) for j, name in ((0, "T1"), (2, "q"))}
gp = lk.LODEGP(system, random_state=0).fit(t, seen)

for name, unit in (("a", "per hour"), ("Ta", "degC")):
    found, truth = gp.parameters_[name], float(example.values[name])
    low, high = found.interval
    print(f"{name} = {found.value:.2f} {unit}, 95 % from {low:.2f} to {high:.2f} (truth: {truth:g})")
hidden = gp.predict(t, "T2") - exact[:, 1]
print(f"hidden room: RMS error {np.sqrt(np.mean(hidden**2)):.2f} K")

figure = gp.plot(truth=example.solution_at, units={"t": "h", "T1": "degC", "T2": "degC", "q": "K/h"})
figure.savefig("two_room.png")
