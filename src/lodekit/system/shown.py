"""Facts as people read them: sentences, text, LaTeX and JSON."""

from __future__ import annotations

from typing import Any

from lodekit.cards import card, listed
from lodekit.system import display, explanation
from lodekit.system.facts import Facts
from lodekit.system.mathml import equations_to_mathml

__all__ = ["Shown"]


class Shown(Facts):
    """Facts that can be looked at."""

    def explain(self) -> str:
        """Return in plain sentences what the solutions of the system look like.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.catalog.three_tank().system.explain())
        2 functions of time can be chosen freely, for example f1 and f2.
        The system is not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.
        """
        return "\n".join(explanation.sentences(self))

    def latex(self) -> str:
        r"""Return equations, Smith form and all solutions as LaTeX.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.System("tau*x' = u", parameters=["tau"]).latex().splitlines()[2])
        \tau \dot{x} - u &= 0
        """
        return display.latex(self)

    def _repr_latex_(self) -> str:
        return f"$${display.latex_equations(self)}$$"

    def _repr_html_(self) -> str:
        names = f"parameters {', '.join(self.parameters)}" if self.parameters else "no parameters"
        lead = f"channels {', '.join(self.channels)}; {names}"
        return card("System", lead, [*equations_to_mathml(self), listed(explanation.sentences(self), "soft")])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole analysis as plain values, ready for JSON.

        Examples
        --------
        >>> import lodekit as lk
        >>> content = lk.System("x' = v").to_dict()
        >>> content["smith_form"]["D"], content["possible_inputs"]
        ([['1', '0']], [['x'], ['v']])
        """
        return display.to_dict(self)

    def __str__(self) -> str:
        return display.text(self)

    def __repr__(self) -> str:
        count = len(self.equations)
        noun = "equation" if count == 1 else "equations"
        names = f", parameters {', '.join(self.parameters)}" if self.parameters else ""
        return f"<System of {count} {noun} in {', '.join(self.channels)}{names}>"
