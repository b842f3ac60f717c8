"""Labels of a fit in figures, reports and files: title, units, time origin and column names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from lodekit.errors import LodekitError


def find_time_zone(name: str, default: tzinfo | None = None) -> tzinfo:
    """Return a time zone by its name; if this machine does not know it, return the default or raise."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        if default is None:
            raise LodekitError(
                f"expected the name of a time zone, such as 'Europe/Berlin', got {name!r}; if this machine has no time "
                "zones, install the package tzdata"
            ) from None
        return default


def format_origin(origin: datetime | None) -> str:
    """Return a date as text, with the name of its time zone as in RFC 9557; empty without a date.

    Examples
    --------
    >>> format_origin(datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")))
    '2026-03-01T12:00:00+01:00[Europe/Berlin]'
    """
    if origin is None:
        return ""
    return f"{origin.isoformat()}[{origin.tzinfo.key}]" if isinstance(origin.tzinfo, ZoneInfo) else origin.isoformat()


def parse_origin(text: str) -> datetime | None:
    """Return the date in the output of `format_origin`; None if it is empty."""
    if not text:
        return None
    date, _, name = text.removesuffix("]").partition("[")
    found = datetime.fromisoformat(date)
    if not name:
        return found
    zone = find_time_zone(name, found.tzinfo or UTC)
    return found.replace(tzinfo=zone) if found.tzinfo is None else found.astimezone(zone)


@dataclass(frozen=True)
class Labels:
    """The labels that figures, reports and files use.

    title: Title of reports; may be empty.
    units: Units of channels, parameters and the time ``t``, by name.
    origin: The date of time zero in the format of `format_origin`; empty if times are not dates.
    columns: Columns of channels and of the time ``t`` in data files, by name or number, if their names differ.
    reading: Options for reading data files: the sampling interval ``default_dt``, numbers for ``missing`` values, and
        whether records are split at gaps, ``split_gaps``.
    warnings: Warnings about the data, one in each line.
    """

    title: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    warnings: str = ""

    @classmethod
    def from_dict(cls, labels: Mapping[str, Any]) -> Labels:
        """Return labels from plain values; raise if they are invalid."""
        if not labels:
            return cls()
        found = cls(**{k: v if isinstance(v, str) else dict(v) for k, v in labels.items()})  # type: ignore[arg-type]
        tables = [text for table in (found.units, found.columns) for pair in table.items() for text in pair]
        if not all(isinstance(text, str) for text in (found.title, found.origin, *tables)):
            raise TypeError("labels are texts")
        parse_origin(found.origin)
        return found

    def updated(
        self, title: str | None = None, units: Mapping[str, str] | None = None, origin: str | None = None
    ) -> Labels:
        """Return labels with those that are given replaced; raise if they are not texts, or the origin is no date."""
        kept, counted = self.origin if origin is None else origin, self.units.get("t", "s")
        try:
            own = {**({"t": "s"} if kept else {}), **self.units, **dict(units or {})}
            title = self.title if title is None else title
            found = Labels.from_dict(self.to_dict() | {"title": title, "units": own, "origin": kept})
        except (TypeError, ValueError):
            raise LodekitError(
                "expected labels as texts, and origin as a date such as 2026-03-01T12:00, got "
                f"title={title!r}, units={units!r}, origin={origin!r}"
            ) from None
        if kept and kept == self.origin and own["t"] != counted:
            raise LodekitError(
                f"the times of this fit are counted in {counted} since {kept}; expected that as the unit of t, got "
                f"{own['t']!r}; to change it, refit with fit(..., units={{'t': {own['t']!r}}})"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all labels by name."""
        found = {"title": self.title, "units": dict(self.units), "origin": self.origin}
        found |= {"warnings": self.warnings} if self.warnings else {}
        return found | {name: dict(getattr(self, name)) for name in ("columns", "reading") if getattr(self, name)}

    @property
    def read_options(self) -> dict[str, Any]:
        """Options for reading other files like those of the fit, which other options replace; they are not split."""
        reading = {name: value for name, value in self.reading.items() if name != "split_gaps"}
        return {"units": self.units, "recalled": self.columns, "is_dated": bool(self.origin), **reading}
