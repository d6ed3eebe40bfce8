"""Billing: usage, costs and the spending cap."""
