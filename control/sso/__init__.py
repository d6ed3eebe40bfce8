"""Single sign-on: how people come in by the identity providers of organizations."""
