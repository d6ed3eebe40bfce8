"""The SQL console: its sessions, and its statements, each run in a process of its own."""
