"""What is told of what happened: events, and the alerts that they raise."""

from control.events.publishing import publish, resolve

__all__ = ["publish", "resolve"]
