"""Webhooks: an organization's events, signed, at the URLs that it registered."""
