"""CSV and Parquet files by their names: what a file is, and which table it becomes."""

import itertools
import tarfile
from pathlib import Path
from typing import Final

from clients.errors import ConfigurationError

FORMAT: Final = "files"
_TABLES: Final = (".csv", ".tsv", ".parquet")
_PACKED: Final = (".gz", ".zst")
_ARCHIVES: Final = (".tgz", ".tar")
MEMBERS_LOOKED_AT: Final = 1000


def source(file: Path, file_format: str | None, table: str | None) -> dict[str, str]:
    """The members `format` and `table` of the request; what was given goes before names."""
    stem = file.name
    for suffix in _PACKED:
        stem = stem.removesuffix(suffix)
    is_table, is_archive = stem.lower().endswith(_TABLES), stem.lower().endswith(_ARCHIVES)
    if file_format is None and (is_table or table is not None or _has_tables(file, stem)):
        file_format = FORMAT
    if table is not None and (file_format != FORMAT or is_archive):
        raise ConfigurationError(
            "--table is for a single CSV or Parquet file; leave it out: of an archive, the tables"
            " are named as the files in it"
        )
    if file_format == FORMAT and table is None and not is_archive:
        table = stem.rpartition(".")[0] or stem
    given = {"format": file_format, "table": table}
    return {name: value for name, value in given.items() if value is not None}


def _has_tables(file: Path, stem: str) -> bool:
    """Whether an archive is of such files; only dumps of pg_dump are archives as well."""
    if not stem.lower().endswith(_ARCHIVES):
        return False
    if file.name != stem or stem.lower().endswith(".tgz"):
        # Dumps are taken uncompressed only.
        return True
    try:
        with tarfile.open(file, "r:") as archive:
            members = itertools.islice(archive, MEMBERS_LOOKED_AT)
            names = [each.name.lower() for each in members]
    except (tarfile.TarError, OSError):
        return False
    for suffix in _PACKED:
        names = [each.removesuffix(suffix) for each in names]
    return any(each.endswith(_TABLES) for each in names)
