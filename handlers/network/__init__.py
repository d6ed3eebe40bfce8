"""Network: from where instances are reached, and under which names."""
