"""The cell: the agent that holds credentials and runs engines, a trust domain of its own."""
