"""A search engine with Meilisearch's API: `python -m instance_services.search`."""
