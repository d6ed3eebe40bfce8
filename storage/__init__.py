"""The records of the control plane, one module per aggregate, and the database they live in."""
