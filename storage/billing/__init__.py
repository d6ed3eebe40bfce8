"""The records of billing: credits, invoices and what leads to them."""
