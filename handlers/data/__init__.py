"""Data: what instances hold."""
