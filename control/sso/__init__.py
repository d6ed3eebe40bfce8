"""Single sign-on: who comes from an identity provider."""
