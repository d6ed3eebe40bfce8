"""Single sign-on: which identity provider signs in whom."""
