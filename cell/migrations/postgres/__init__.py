"""Migrations into PostgreSQL: by its own tools, as the owner, under the limits of the instance."""
