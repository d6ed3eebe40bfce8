"""Engines' sockets are connected to in one place, which follows no link and asks who answers."""

import re
from pathlib import Path

from contract_tests.habits.test_sizes import FILES, ROOT, names

OURS = ROOT / "gateway" / "sockets.py"
# What connects to a unix socket by its path, in the libraries that the cell uses.
PLAIN = re.compile(
    r"AF_UNIX|open_unix_connection\((?!sock=)|create_unix_connection\((?!.*sock=)"
    r"|unix_socket(_path)?=|UnixConnection|\buds="
)
# The cell's own socket, in the cell's own folder: one serves there and one asks.
EXCEPTIONS = {"cell/main.py", "gateway/wake.py"}
# libpq connects by itself; it is led to a relay, which connects by our socket, or by a folder of
# ours, and its peer is asked afterwards.
LIBPQ = re.compile(r"psycopg\.(Async)?(C|c)onnect(ion\.connect)?\(|PGconn\.connect")
FOLDER, RELAY = "sockets.folder_of(", "relay.opened_beside("
PRODUCT = {"menagerie", "cell", "gateway", "control", "instance_services", "clients", "pages"}
CELLS = [
    path
    for path in FILES
    if path.relative_to(ROOT).parts[0] in {"cell", "gateway"} and path != OURS
]


def said(path: Path) -> str:
    return re.sub(r"#.*", "", path.read_text())


def test_nobody_connects_to_an_engine_by_a_plain_path() -> None:
    texts = {names(path): said(path) for path in CELLS}
    assert not [name for name in texts.keys() - EXCEPTIONS if PLAIN.search(texts[name])]
    asking = {name for name, text in texts.items() if LIBPQ.search(text)}
    for name in asking:
        led = "sockets.check(" if FOLDER in texts[name] else RELAY
        assert led in texts[name], name


# The interpreter puts the working folder first, where another user's modules may lie.
STARTS = re.compile(r'(sys\.executable|\.program),? (?!"-P"|"-I")"-[mc]"')


def test_no_part_is_started_with_modules_of_the_working_folder() -> None:
    product = {names(path): path for path in FILES if path.relative_to(ROOT).parts[0] in PRODUCT}
    assert not [name for name, path in product.items() if STARTS.search(said(path))]
    assert '"-P", "-m", "menagerie.part"' in said(product["menagerie/processes.py"])
