"""Work of access: it ends where the right to it does."""
