"""The records of billing: what was metered, which plans were held, and what has been told."""
