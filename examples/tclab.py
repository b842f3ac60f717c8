"""Two heaters and two thermometers on one board.

The Temperature Control Lab is a board for teaching: two transistors serve as heaters, each with a thermometer, and
each warms the other. The heaters were switched at random for ten minutes. The record is real (APMonitor/arduino,
Apache-2.0) and not part of this project: give its folder, `python examples/tclab.py FOLDER`, or set LODEKIT_DATA.

The temperatures TH1 and TH2 of the heaters are not measured, and the ambient temperature Ta is unknown. Six
parameters are estimated from ten minutes of data, without start values.

What to look for: the hidden temperature of the first heater leads that of its thermometer. Nearly all of the variance
of the thermometers is explained, but residuals are correlated: these four equations do not describe the board
completely. Intervals are widened accordingly.
"""

import os
import sys
from pathlib import Path

import numpy as np

import lodekit as lk

folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LODEKIT_DATA", "../shared/data"))
record = folder / "tclab_mimo_random_steps.csv"
if not record.exists():
    sys.exit(f"no record {record}: it comes from github.com/APMonitor/arduino; give its folder as an argument")
t, Q1, Q2, T1, T2 = np.loadtxt(record, delimiter=",", skiprows=1).T

board = lk.System(
    """
    tau*TH1' + (TH1 - Ta) = K1*Q1 + K3*(TH2 - TH1)
    tau*TH2' + (TH2 - Ta) = K2*Q2 + K3*(TH1 - TH2)
    s*T1' + T1 = TH1
    s*T2' + T2 = TH2
    """,
    parameters={**dict.fromkeys(("K1", "K2", "K3", "tau", "s"), lk.Parameter(positive=True)), "Ta": lk.Parameter()},
)
gp = lk.LODEGP(board, inputs={"Q1": "hold", "Q2": "hold"}, random_state=0)
gp.fit(t, {"Q1": Q1, "Q2": Q2, "T1": T1, "T2": T2})

for name, found in gp.parameters_.items():
    print(f"{name} = {found.value:.3g}, 95 % from {found.interval[0]:.3g} to {found.interval[1]:.3g}")
for name, measured in (("T1", T1), ("T2", T2)):
    left = np.linalg.norm(measured - gp.predict(t, name)) / np.linalg.norm(measured - measured.mean())
    print(f"{name}: {100 * (1 - left):.0f} % explained")
for sentence in gp.diagnose().sentences:
    print(sentence)

units = {"t": "s", "T1": "degC", "T2": "degC", "TH1": "degC", "Q1": "%", "Q2": "%"}
figure = gp.plot(np.linspace(t[0], t[-1], 400), observable=["T1", "TH1", "T2", "Q1", "Q2"], units=units)
figure.savefig("tclab.png")
