"""Roles, service accounts and access for support: one module for each tag of the document."""
