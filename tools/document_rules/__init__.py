"""The rules that every OpenAPI document of the service is held to, grouped by what they look at."""
