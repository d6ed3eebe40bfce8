"""What is told of what happened: events, and the alerts that they raise."""

from control.events.publishing import cause_of_cell, publish, raise_, resolve

__all__ = ["cause_of_cell", "publish", "raise_", "resolve"]
