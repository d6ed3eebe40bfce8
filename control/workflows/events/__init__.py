"""Work on events: alerts that are evaluated, and the audit log, which is sealed and published."""
