"""SAML 2.0, the service provider: what is sent to an identity provider and read from one."""
