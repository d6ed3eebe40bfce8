"""Work of events: what was written to the audit log is sealed and published."""
