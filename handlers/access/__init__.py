"""Access: people and keys, organizations, and what each can do."""
