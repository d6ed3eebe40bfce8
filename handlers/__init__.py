"""What each operation of openapi.yaml means, one module per tag, a function per operation."""
