"""Billing: credits, invoices and what leads to them."""
