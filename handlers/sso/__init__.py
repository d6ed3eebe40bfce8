"""Single sign-on: connections, domains, and signing in by a provider."""
