"""What works on this machine, what does not, and the command that mends it."""
