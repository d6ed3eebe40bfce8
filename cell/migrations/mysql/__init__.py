"""Migrations from running MySQL and MariaDB servers: the cell logs in, a tool dumps."""
