"""Instances, and the ways to reach what they hold."""
