"""The handlers of the queues' document."""
