"""Data: backups of instances, and restores of them."""
