"""The records of instances, and what is kept about them."""
