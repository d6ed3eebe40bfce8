"""The records of what happened: events and the audit log."""
