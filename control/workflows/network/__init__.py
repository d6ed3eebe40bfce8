"""Work on networks: allow-lists, client CAs and host names, told to cells."""
