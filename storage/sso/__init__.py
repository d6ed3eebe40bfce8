"""Single sign-on and SCIM: connections, who comes by them, domains, what providers push."""
