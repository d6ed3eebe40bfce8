"""The records of billing: what was metered, which plans were held, credits and invoices."""
