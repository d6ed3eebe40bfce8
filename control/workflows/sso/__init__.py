"""Work of single sign-on that outlives a request."""
