"""Single sign-on and SCIM: how an organization's identity provider brings people in."""
