"""Queues in the databases of postgres instances: PGMQ, and what a service needs around it."""
