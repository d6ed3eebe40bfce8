"""PostgreSQL and engines that are PostgreSQL with an extension."""

from cell.engines.postgres.driver import PostgreSQL, TimescaleDB

__all__ = ["PostgreSQL", "TimescaleDB"]
