"""The records of access: people and keys, organizations, and who belongs to what."""
