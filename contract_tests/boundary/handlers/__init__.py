"""Handlers of the boundary's test document: each does one thing the boundary must see to."""
