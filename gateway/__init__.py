"""The TLS proxy before a cell's engines: the only way from the network to an instance."""
