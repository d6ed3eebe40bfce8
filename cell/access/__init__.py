"""Access: who calls the cell, and the secrets and one-time URLs that let people in."""
