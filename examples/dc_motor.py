"""A DC motor with voltage steps.

The voltage of a DC motor is switched every few seconds. It is a known input, held between samples, and not a random
function. Speed w and current i are logged. The torque constant K is given in the data sheet; inertia, friction,
resistance and inductance are estimated.

What to look for: only the noise and the initial state are random, and the evidence is computed from these alone (by
the modal engine). The three numbers below the estimates are those that a control engineer needs next.
"""

import numpy as np
from scipy.signal import cont2discrete

import lodekit as lk

example = lk.catalog.dc_motor()
constants = {name: lk.Parameter(positive=True) for name in ("J", "b", "R", "L")} | {"K": lk.Parameter(fixed=0.05)}
system = lk.System(example.system.equations, parameters=constants)
plant = example.system.substitute(example.values).state_space(inputs=["V"])

# simulate: the voltage changes every two seconds, speed and current are logged ten times a second
step, noise = 0.1, np.random.default_rng(0)
t = step * np.arange(200)
V = np.repeat(noise.uniform(0, 10, 10), 20)
A, B, C, D = (np.array(matrix.tolist(), dtype=float) for matrix in (plant.A, plant.B, plant.C, plant.D))
F, G, *_ = cont2discrete((A, B, C, D), step)
states = [np.zeros(2)]
for held in V[:-1]:
    states.append(F @ states[-1] + G[:, 0] * held)
exact = dict(zip(plant.outputs, (np.array(states) @ C.T).T, strict=True))
data = {"V": V, "w": exact["w"] + 0.05 * noise.standard_normal(200), "i": exact["i"] + 0.1 * noise.standard_normal(200)}

gp = lk.LODEGP(system, inputs={"V": "hold"}, random_state=0).fit(t, data)
for name in ("J", "b", "R", "L"):
    found = gp.parameters_[name]
    low, high = found.interval
    print(f"{name} = {found.value:.3g}, 95 % from {low:.3g} to {high:.3g} (truth: {float(example.values[name]):g})")
response = gp.transfer_function("w", "V")
print(f"speed per volt: {response.gain.value:.3f} +- {response.gain.std_error:.3f}")
print("time constants:", ", ".join(f"{each.value:.3f} s" for each in response.time_constants))

figure = gp.plot(units={"t": "s", "w": "rad/s", "i": "A", "V": "V"})
figure.savefig("dc_motor.png")
