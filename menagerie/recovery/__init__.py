"""The whole installation, backed up in one encrypted archive and recovered on another machine."""
