"""What the companion of a session answers: plain values, which travel from one process to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lodekit.studio.words import Analysis
from lodekit.system.parameters import Parameter

__all__ = ["NO_EQUATIONS", "Outline", "Picture", "Sample", "Text", "Understanding"]

#: Equations and declared parameters, as they were typed.
Text = tuple[str, str]
#: What is said where something needs a system, and there is none yet.
NO_EQUATIONS = "expected equations first, such as x' = -a*x + u"


@dataclass(frozen=True)
class Outline:
    """What the page has to know of a system.

    Parameters
    ----------
    equations, parameters, channels : tuple of str
    """

    equations: tuple[str, ...]
    parameters: tuple[str, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True)
class Understanding:
    """A text as far as it was understood.

    Parameters
    ----------
    outline : Outline or None
        None where the text is no system.
    analysis : Analysis or None
        What the equations imply.
    trouble : str
        What is wrong, with carets below the line where it is; empty where nothing is.
    taken : tuple of str
        Names that nobody declared, and that were taken for parameters.
    is_empty : bool
        Whether there is no text yet.
    """

    outline: Outline | None = None
    analysis: Analysis | None = None
    trouble: str = ""
    taken: tuple[str, ...] = ()
    is_empty: bool = False


@dataclass(frozen=True)
class Sample:
    """An example of the catalog.

    Parameters
    ----------
    name, story : str
        What it is called, and what it is in one line.
    outline : Outline
    parameters : dict of str to Parameter
        What is known of them.
    values : dict of str to float
        The true ones.
    """

    name: str
    story: str
    outline: Outline
    parameters: Mapping[str, Parameter]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Picture:
    """The curve at some values of the parameters, drawn.

    Parameters
    ----------
    svg : str
    log_evidence : float
        At these values.
    """

    svg: str
    log_evidence: float
