"""Single sign-on and SCIM: what identity providers say of people, and what follows from it."""
