"""Mutation testing: small changes are made in a room, and each must fail one of its tests."""
