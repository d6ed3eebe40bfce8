"""Single sign-on: connections to identity providers, and signing in by them."""
