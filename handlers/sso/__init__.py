"""Handlers of single sign-on."""
