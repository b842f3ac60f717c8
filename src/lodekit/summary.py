"""The result of a fit as a table in text, and intervals of its parameters at any level."""

from __future__ import annotations

from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.learning.needs import UNSEEN
from lodekit.learning.sentences import MODES
from lodekit.learning.summary import format_summary

__all__ = ["intervals", "summary"]


def summary(fit: Fit) -> str:
    """Return the result as a table in text: parameters with standard errors and intervals, all else that was learned.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> print(gp.summary().splitlines()[0].strip())
    LODE-GP Results
    """
    title = [
        ("Channels", str(len(fit.system.plain_channels))),
        ("Observations", f"{fit.setup.engine.size}{f' ({len(fit.records)} records)' if len(fit.records) > 1 else ''}"),
        ("Free functions", str(fit.setup.reduced.free_functions)),
        ("Log evidence", f"{fit.log_evidence:.3f}"),
        ("Converged", "yes" if fit.converged else "no"),
        ("Engine", fit.choice.name),
    ]
    fixed = " (open)" if fit.layout.open_modes is not None else "" if fit.layout.learns_modes else " (fixed)"
    others: dict[str, float | str] = {
        f"{name}{fixed * name.startswith(MODES)}": value for name, value in fit.described.items()
    }
    # What is best at zero is left at a limit of the search, whose number says nothing.
    for each in (each for each in fit.disturbances.values() if not each.deviation):
        others.pop(f"lengthscale of {each.name}", None)
        others[f"deviation of {each.name}"] = "0 (not needed)" if each.note != UNSEEN else "unknown"
    others |= {f"noise ({name})": value for name, value in fit.noise.items()}
    least = " (least)" if len(fit.records) > 1 else ""
    shares = fit.diagnosis.explained
    others |= {f"explained of {name}{least}": f"{max(share, 0.0):.1%}" for name, share in shares.items()}
    others |= {
        f"residuals of {check.title}": "correlated" if check.is_correlated else "independent"
        for check in fit.diagnosis.checks
        if check.whiteness is not None
    }
    notes = (*fit.input_notes, *fit.diagnosis.notes, *fit.notes)
    return "\n".join([format_summary(title, fit.estimates, others, fit.warnings), *(f"Note: {n}" for n in notes)])


def intervals(fit: Fit, share: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return intervals of the parameters, by name, that hold the truth as often as is asked for.

    Those of 95 % are also in `parameters_`. Where the data do not tell a parameter, the interval is all that it may be.

    Parameters
    ----------
    share : float
        Between zero and one, such as 0.5 or 0.99.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> narrow, wide = gp.intervals(0.5)["a"], gp.intervals(0.99)["a"]
    >>> wide[0] < narrow[0] < gp.parameters_["a"].value < narrow[1] < wide[1]
    True
    """
    if not isinstance(share, (int, float)) or not 0.0 < share < 1.0:
        raise LodekitError(f"expected a share between zero and one, such as 0.95, got {share!r}")
    return {name: each.interval for name, each in fit.estimates_at(float(share)).items()}
