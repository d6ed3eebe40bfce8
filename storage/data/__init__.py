"""Data: backups of instances, restores of them, and migrations into instances."""
