"""Owns the records of single sign-on and SCIM."""
