"""The result of a fit as a table in text."""

from __future__ import annotations

from lodekit.fitted import Fit
from lodekit.learning.sentences import MODES
from lodekit.learning.summary import format_summary

__all__ = ["summary"]


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
