"""A fit as plain values, as programs read them."""

from __future__ import annotations

from typing import Any

from lodekit.fitted import Fit
from lodekit.learning.findings import Findings

__all__ = ["plain_values"]


def plain_values(fit: Fit) -> dict[str, Any]:
    """Return the result of a fit as plain values, ready for JSON; what is infinite is None."""
    return {
        "parameters": {name: estimate.to_dict() for name, estimate in fit.estimates.items()},
        "inputs": fit.describe_inputs(),
        "disturbances": {name: each.to_dict() for name, each in fit.disturbances.items()},
        "noise": dict(fit.noise),
        "hyperparameters": dict(fit.described),
        "log_evidence": float(fit.log_evidence),
        "observations": int(fit.setup.engine.size),
        **({"records": _describe_records(fit)} if fit.setup.parts else {}),
        "converged": bool(fit.converged),
        "engine": str(fit.choice),
        "explained": dict(fit.diagnosis.explained),
        **Findings.of(fit.diagnosis, fit.labels.units.get("t", "")).to_dict(),
        "warnings": list(fit.warnings),
        "remarks": [*fit.diagnosis.notes, *fit.setup.name_notes],
    }


def _describe_records(fit: Fit) -> dict[str, Any]:
    """Return what is to be said of each of several records, as plain values."""
    return {
        name: {
            "observations": int(part.setup.engine.size),
            "window": list(part.measurements.window),
            "log_evidence": float(part.log_evidence),
            "explained": dict(part.diagnosis.explained),
        }
        for name, part in zip(fit.records, fit.parts, strict=True)
    }
