"""Rows of a subquery as one JSON value, so that they come with the row that they belong to."""

from typing import Any

from sqlalchemy import JSON
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from storage.columns import Json


class JsonObject(FunctionElement[Any]):
    """Of the names and values of all rows; null or empty where there is none."""

    name = "json_object_of_rows"
    type = Json
    inherit_cache = True


class JsonArray(FunctionElement[Any]):
    """Of these columns of one row."""

    name = "json_array_of_columns"
    type = Json
    inherit_cache = True


@compiles(JsonObject, "sqlite")
def _sqlite_object(element: JsonObject, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_object({compiler.process(element.clauses, **options)})"


@compiles(JsonObject, "postgresql")
def _postgresql_object(element: JsonObject, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_object_agg({compiler.process(element.clauses, **options)})"


@compiles(JsonArray, "sqlite")
def _sqlite_array(element: JsonArray, compiler: SQLCompiler, **options: Any) -> str:
    # A column of JSON is text there, and would be quoted as one.
    columns = (
        f"json({compiler.process(column, **options)})"
        if isinstance(column.type, JSON)
        else compiler.process(column, **options)
        for column in element.clauses
    )
    return f"json_array({', '.join(columns)})"


@compiles(JsonArray, "postgresql")
def _postgresql_array(element: JsonArray, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_build_array({compiler.process(element.clauses, **options)})"
