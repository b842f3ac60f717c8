"""Heating of a school in winter.

Hourly heating power Ph, outside temperature Ta and inside temperature Ti of a school, for 33 days in winter. The
real record (czagoni/darkgreybox, MIT) is not included: run `python examples/school.py FOLDER`, or set LODEKIT_DATA.

Only the air temperature Ti is measured; those of the walls, Te, and of the heating, Th, are hidden. The model is
fitted to all but the last five days, which it then simulates from the weather and the heating power alone. The tool
that comes with the data has an error of 0.372 K in the fitted part, and of 0.338 K in the last five days.

What to look for: the simulation of five days has an error of a third of a degree. Rea, the thermal resistance from
the walls to the outside, is not identified: its estimate tends to infinity, because these data can be explained
without any heat flow from the walls to the outside. The fit warns about this.
"""

import os
import sys
from pathlib import Path

import numpy as np

import lodekit as lk
from lodekit.plotting import add_legend, draw_channel, draw_input, make_panels

folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LODEKIT_DATA", "../shared/data"))
record = folder / "school_heating.csv"
if not record.exists():
    sys.exit(f"no record {record}: it comes from github.com/czagoni/darkgreybox; give its folder as an argument")
Ph, Ti, Ta = np.loadtxt(record, delimiter=",", skiprows=1, usecols=(1, 2, 3)).T
t, cut = np.arange(float(len(Ti))), len(Ti) - 120

school = lk.System(
    """
    Ci*Ti' = (Te - Ti)/Rie + (Ta - Ti)/Ria + (Th - Ti)/Rih
    Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea
    Ch*Th' = (Ti - Th)/Rih + Ph
    """,
    parameters=dict.fromkeys(("Ci", "Ce", "Rie", "Ria", "Rea"), lk.Parameter(positive=True))
    | {"Ch": lk.Parameter(fixed=2.55), "Rih": lk.Parameter(fixed=0.65)},
)
gp = lk.LODEGP(school, inputs={"Ph": "hold", "Ta": "hold"}, random_state=0)
gp.fit(t[:cut], {"Ph": Ph[:cut], "Ta": Ta[:cut], "Ti": Ti[:cut]})

# simulate five days from the weather and the heating, starting at the estimated walls and the measured air
later = {"Ph": (t[cut:], Ph[cut:]), "Ta": (t[cut:], Ta[cut:])}
walls = gp.simulate(t[cut : cut + 1], {"Ph": (t, Ph), "Ta": (t, Ta)}, start="end", observable="Te")[0]
start = {"Ti": Ti[cut], "Th": Ti[cut], "Te": walls}
run, std = gp.simulate(t[cut:], later, start, "Ti", return_std=True)
fitted = gp.predict(t[:cut], "Ti")
print(f"RMS error in the fitted part: {np.sqrt(np.mean((fitted - Ti[:cut]) ** 2)):.3f} K")
print(f"RMS error in the last five days: {np.sqrt(np.mean((run - Ti[cut:]) ** 2)):.3f} K")
print("not identified:", ", ".join(name for name, found in gp.parameters_.items() if not found.identified))

figure, panels = make_panels(3)
band = np.hypot(std, gp.noise_["Ti"])
draw_channel(panels[0], t[cut:] / 24, run, band, data=(t[cut:] / 24, Ti[cut:]), label="inside", unit="degC")
for panel, values, label in ((panels[1], Ta, "outside (degC)"), (panels[2], Ph, "heating")):
    draw_input(panel, t[cut:] / 24, values[cut:], label=label)
panels[2].set_xlabel("t (days)")
add_legend(figure, panels, outside=True)
figure.savefig("school.png")
