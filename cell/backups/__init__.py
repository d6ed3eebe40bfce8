"""Backups in a store of their own: how they are sealed, written, read back and removed."""
