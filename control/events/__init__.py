"""What is told of what happened: events, and the alerts that they raise."""

from control.events.publishing import publish

__all__ = ["publish"]
