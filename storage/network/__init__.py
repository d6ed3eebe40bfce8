"""The records of networks: from where instances are reached, and under which names."""
