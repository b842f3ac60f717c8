"""A lamp over a steel plate, and a model that is too simple.

A halogen lamp heats a plate from above; its voltage was switched for 27 minutes (DaISy, Roy Smith; 801 rows). The record is real, and
not part of this project: give its folder, `python examples/lamp.py FOLDER`, or set LODEKIT_DATA.

One time constant is the first thing to try. It explains most of what happens, least squares would be content, and the residuals
say that it is wrong.

What to see: on the left data and fit look alike. On the right the same fit by what it leaves: slow waves instead of noise,
correlations near one, a periodogram far outside its band. Intervals are eleven times as wide as independent errors would
make them.
"""

import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import lodekit as lk

folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LODEKIT_DATA", "../shared/data"))
record = folder / "daisy_heating_system.dat"
if not record.exists():
    sys.exit(f"no record {record}: it is the heating system of DaISy (KU Leuven); give its folder as an argument")
t, u, y = np.loadtxt(record).T

lamp = lk.System(
    "tau*y' + y - y0 = K*u",
    parameters={"tau": lk.Parameter(positive=True), "K": lk.Parameter(positive=True), "y0": lk.Parameter()},
)
gp = lk.LODEGP(lamp, inputs={"u": "hold"}, random_state=0).fit(t, {"u": u, "y": y})
for name, found in gp.parameters_.items():
    print(f"{name} = {found.value:.4g}, 95 % from {found.interval[0]:.3g} to {found.interval[1]:.3g}")
left = y - gp.predict(t, "y")
print(f"explained: {100 * (1 - np.linalg.norm(left) / np.linalg.norm(y - y.mean())):.0f} %")
print(gp.diagnose().sentences[0])

figure = Figure(figsize=(9.5, 5), layout="constrained")
curves, rest = figure.subfigures(1, 2)
gp.plot(observable=["y", "u"], axes=curves.subplots(2, sharex=True), units={"t": "s", "y": "degC", "u": "V"})
gp.plot_residuals(axes=rest.subplots(3))
figure.savefig("lamp.png")
