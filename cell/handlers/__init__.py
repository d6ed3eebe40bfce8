"""The operations of cell/openapi.yaml, a module for each tag."""
