"""SCIM 2.0 (RFC 7643 and 7644): an organization's identity provider pushes people and groups."""
