"""A lamp over a steel plate, and a model that is too simple.

A halogen lamp heats a plate from above; its voltage was switched for 27 minutes (DaISy, Roy Smith; 801 rows). The
record is real and not part of this project: give its folder, `python examples/lamp.py FOLDER`, or set LODEKIT_DATA.

One time constant is the first model to try. It explains most of the variance, which would look sufficient in a
least-squares fit, but the residuals show that it is wrong.

What to look for: the fit roughly follows the record. The residuals have the shape of the lamp's steps, which
independent noise cannot have. Intervals are ten times as wide as they would be with independent errors.
"""

import os
import sys
from pathlib import Path

import numpy as np

import lodekit as lk
from lodekit.plotting import add_legend, draw_channel, draw_input, make_panels

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
curve, std = gp.predict(t, "y", return_std=True)
print(f"fit: {100 * (1 - np.linalg.norm(y - curve) / np.linalg.norm(y - y.mean())):.0f} %")
print(gp.diagnose().sentences[0])

figure, panels = make_panels(3)
draw_channel(panels[0], t, curve, std, data=(t, y), label="y", unit="degC")
draw_channel(panels[1], t, y - curve, label="residual", unit="K")
draw_input(panels[2], t, u, label="lamp (V)")
panels[2].set_xlabel("t (s)")
add_legend(figure, panels, outside=True)
figure.savefig("lamp.png")
