"""Billing: usage, costs, the spending cap, credits and invoices."""
