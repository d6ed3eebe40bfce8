"""Work of roles: the keys of issuers, by which programs show who they are."""
