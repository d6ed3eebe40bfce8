"""Work on instances, from their order to their erasure."""
