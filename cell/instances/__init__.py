"""Instances: their records, and their engines from the first start to the erasure."""
