"""Redis and Valkey: their own servers, one process for each instance, behind the same driver."""

from cell.engines.resp.driver import Redis, Valkey

__all__ = ["Redis", "Valkey"]
