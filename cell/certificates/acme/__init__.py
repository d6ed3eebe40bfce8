"""Certificates of custom domains from an ACME server (RFC 8555), by TLS-ALPN-01 (RFC 8737)."""
