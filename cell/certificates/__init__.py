"""Certificates: the local CA, and those of custom domains by ACME."""
