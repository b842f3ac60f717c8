"""Fitted models that take rows as they come: states, predictions and alarms."""

from lodekit.online.moment import Innovation
from lodekit.online.starting import stream
from lodekit.online.stream import Stream

__all__ = ["Innovation", "Stream", "stream"]
