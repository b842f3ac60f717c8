"""A school in winter.

Heating power Ph, outside temperature Ta and inside temperature Ti of a school, by the hour, for 33 days (czagoni/darkgreybox, MIT). The
record is real, and not part of this project: give its folder, `python examples/school.py FOLDER`, or set LODEKIT_DATA.

The model has three temperatures, of which one is measured: the air, the walls Te and the heating Th. It is fitted to all but the last
five days, and has to find these from the weather and the heating alone. The tool that the data come with reports errors of 0.372 K where
it was fitted and 0.338 K in the five days.

What to see: a free run over five days stays within a third of a degree. Rea, the way from the walls to the outside, is not identified:
heat that leaves by the walls cannot be told from heat that leaves directly, and the fit says so instead of giving a number.
"""

import os
import sys
from pathlib import Path

import numpy as np

import lodekit as lk
from lodekit.plotting import draw_channel, make_panels

folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LODEKIT_DATA", "../shared/data"))
record = folder / "school_heating.csv"
if not record.exists():
    sys.exit(f"no record {record}: it is tutorial data of github.com/czagoni/darkgreybox; give its folder as an argument")
Ph, Ti, Ta = np.loadtxt(record, delimiter=",", skiprows=1, usecols=(1, 2, 3)).T
t, cut = np.arange(float(len(Ti))), len(Ti) - 120

school = lk.System(
    """
    Ci*Ti' = (Te - Ti)/Rie + (Ta - Ti)/Ria + (Th - Ti)/Rih
    Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea
    Ch*Th' = (Ti - Th)/Rih + Ph
    """,
    parameters={
        **dict.fromkeys(("Ci", "Ce", "Rie", "Ria", "Rea"), lk.Parameter(positive=True)),
        "Ch": lk.Parameter(fixed=2.55),
        "Rih": lk.Parameter(fixed=0.65),
    },
)
gp = lk.LODEGP(school, inputs={"Ph": "hold", "Ta": "hold"}, random_state=0)
gp.fit(t[:cut], {"Ph": Ph[:cut], "Ta": Ta[:cut], "Ti": Ti[:cut]})


later = {"Ph": (t[cut - 1 :], Ph[cut - 1 :]), "Ta": (t[cut - 1 :], Ta[cut - 1 :])}
run, std = gp.simulate(t[cut:], later, start="end", observable="Ti", return_std=True)
for when, off in (("where it was fitted", gp.predict(t[:cut], "Ti") - Ti[:cut]), ("in the last five days", run - Ti[cut:])):
    print(f"{when}: off by {np.sqrt(np.mean(off**2)):.3f} K")
print("not identified:", ", ".join(name for name, found in gp.parameters_.items() if not found.identified))

figure, (air, outside, heat) = make_panels(3)
draw_channel(air, t[cut:] / 24, run, np.hypot(std, gp.noise_["Ti"]), data=(t[cut:] / 24, Ti[cut:]), label="Ti", unit="degC")
draw_channel(outside, t[cut:] / 24, Ta[cut:], label="Ta", unit="degC")
draw_channel(heat, t[cut:] / 24, Ph[cut:], label="Ph", unit="kW")
heat.set_xlabel("t (days)")
figure.savefig("school.png")
