"""Work on events: alerts that are evaluated, and sent by email."""
