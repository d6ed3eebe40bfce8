"""Running servers of Redis and Valkey as sources: copied, and followed until the cutover."""
