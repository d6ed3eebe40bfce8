"""Owns the handlers of the sample API that the tests of specserver serve."""
