"""Pages for people: signing in, invites, the second factor and the account, without scripts."""
