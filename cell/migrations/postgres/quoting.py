"""How names and texts are written in SQL that the cell makes."""


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    return f"{identifier(schema)}.{identifier(name)}"


def literal(text: str) -> str:
    """Whatever `standard_conforming_strings` says."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f" E'{escaped}'"


def shown(schema: str, name: str) -> str:
    return f"{schema}.{name}"
