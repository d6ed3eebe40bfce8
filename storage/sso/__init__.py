"""Single sign-on: connections to identity providers, who comes by them, sign-ins in progress."""
