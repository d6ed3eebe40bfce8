"""Data: copies of what instances hold, made, kept and restored, and data that comes in."""
