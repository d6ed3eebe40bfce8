"""How an engine's process is confined, started, watched and found again."""
