"""Events: what happened, and who did it."""
