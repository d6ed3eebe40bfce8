"""OpenID Connect: what a provider publishes, the way to it and back, and the token it signs."""
