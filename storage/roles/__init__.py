"""Roles that organizations make and give, service accounts, and access for support."""
