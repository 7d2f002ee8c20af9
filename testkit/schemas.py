"""Schema of a store as text, after migrating from empty, comparable line by line."""

from __future__ import annotations

import re
import sqlite3

import asyncpg

_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default
FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""
# Not-null constraints are named only since PostgreSQL 18; the columns say the same.
_CONSTRAINTS = """
SELECT conrelid::regclass::text AS table_name, pg_get_constraintdef(oid) AS definition
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY 1, 2
"""
_INDEXES = """
SELECT tablename AS table_name, indexdef AS definition
FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname
"""
# Those of identity columns belong to their column, which says so.
_SEQUENCES = """
SELECT relname::text AS table_name, 'bigint' AS definition FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'i')
ORDER BY 1
"""
_SETTINGS = """
SELECT relname::text AS table_name, unnest(reloptions) AS definition
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL ORDER BY 1, 2
"""


def sqlite_schema(connection: sqlite3.Connection) -> str:
    """Return every table and index of a file, by name."""
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    return "\n".join(f"{_one_line(sql)};" for (sql,) in rows) + "\n"


def _one_line(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).strip()


async def postgres_schema(address: str) -> str:
    """Return every column, constraint, index, sequence and storage setting of a database."""
    connection = await asyncpg.connect(address)
    try:
        columns = await connection.fetch(_COLUMNS)
        lines = [_column(row) for row in columns]
        for kind, rows in (
            ("constraint", await connection.fetch(_CONSTRAINTS)),
            ("index", await connection.fetch(_INDEXES)),
            ("sequence", await connection.fetch(_SEQUENCES)),
            ("setting", await connection.fetch(_SETTINGS)),
        ):
            lines += [f"{kind} {row['table_name']}: {row['definition']}" for row in rows]
    finally:
        await connection.close()
    return "\n".join(lines) + "\n"


def _column(row: asyncpg.Record) -> str:
    nullable = "" if row["is_nullable"] == "YES" else " not null"
    default = "" if row["column_default"] is None else f" default {row['column_default']}"
    return f"column {row['table_name']}.{row['column_name']} {row['data_type']}{nullable}{default}"
