"""Data: copies of what instances hold, made, kept and restored."""
