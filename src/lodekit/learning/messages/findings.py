"""What residuals say about a fit, for people and programs: one sentence for each channel, and the numbers below it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lodekit.learning.diagnosis.diagnosis import Diagnosis, plain_values
from lodekit.learning.diagnosis.residuals import Check
from lodekit.wording import sentence, show_chance

__all__ = ["Findings"]


@dataclass(frozen=True)
class Findings:
    """What residuals say about a fit.

    Parameters
    ----------
    checks : tuple of Check
        Of each observable: sizes, correlations and tests.
    widening : dict of str to float
        Factors by which standard errors of parameters were widened for correlated residuals; empty for none.
    time_unit : str
        Of the time, where it is known.
    """

    checks: tuple[Check, ...]
    widening: Mapping[str, float]
    time_unit: str = ""

    @classmethod
    def of(cls, diagnosis: Diagnosis, time_unit: str = "") -> Findings:
        """Return what a diagnosis holds about residuals.

        Parameters
        ----------
        diagnosis : Diagnosis
        time_unit : str
            Of the time.
        """
        return cls(diagnosis.checks, dict(diagnosis.widening), time_unit)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict on each observable, in its order."""
        largest = max(self.widening.values(), default=math.nan)
        return tuple(check.sentence(self.time_unit, largest) for check in self.checks)

    @property
    def is_independent(self) -> bool:
        """Whether nothing speaks against independent residuals of all observables."""
        return not any(check.is_doubtful for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is not finite is None."""
        residuals = {}
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            own: dict[str, Any] = {"verdict": verdict, "correlated": check.is_correlated, "rms": check.size}
            own["count"] = check.count
            own |= {} if check.whiteness is None else asdict(check.whiteness)
            residuals[check.title] = own
        found: dict[str, Any] = plain_values({"residuals": residuals, "widening": dict(self.widening)})
        return found

    def __repr__(self) -> str:
        lines = []
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            lines.append(sentence(verdict))
            found = check.whiteness
            if found is None:
                continue
            lines.append(f"  lags       {' '.join(f'{each:.2f}' for each in found.lags)}, step {found.step:.3g}")
            lines.append(
                f"  Ljung-Box  {found.ljung_box:.1f} over {len(found.lags)} lags, {show_chance(found.p_value)}"
            )
            lines.append(f"  cumulated periodogram  {found.excursion:.3f} from a line, 95 % band {found.band:.3f}")
            lines += [
                f"  with {name}  {link.correlation:.2f} at a delay of {link.delay:.3g}, {show_chance(link.p_value)}"
                for name, link in found.links.items()
            ]
        if self.widening:
            listed = ", ".join(f"{name} {factor:.2f}" for name, factor in self.widening.items())
            lines.append(f"Standard errors are widened: {listed}.")
        return "\n".join(lines)
