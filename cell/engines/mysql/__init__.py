"""MySQL's family: MariaDB and MySQL, two dialects of one driver."""

from cell.engines.mysql.driver import mariadb, mysql

__all__ = ["mariadb", "mysql"]
