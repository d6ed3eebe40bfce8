"""One module per protocol: how it starts, and how it words a refusal."""
