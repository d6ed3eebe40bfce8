"""Whatever asks over HTTP has bounded answers: in time, size, and how they are compressed."""

import ast
from collections.abc import Iterator

from contract_tests.habits.test_imports import SHIPPED, imported
from contract_tests.habits.test_sizes import names, parsed

# Each refuses what is compressed, and reads up to a bound.
BOUNDED = {
    "gateway/bounded_answers.py",
    "clients/transport.py",  # with clients/answers.py
    "cell/certificates/acme/answers.py",
}
BARE = {
    "httpx": {"Client", "AsyncClient", "get", "post", "put", "patch", "delete", "head", "options"}
    | {"request", "stream"},
    "requests": {"Session", "session", "get", "post", "put", "patch", "delete", "head", "options"}
    | {"request"},
}
NEVER = {"urllib.request", "aiohttp", "urllib3"}
TAKES_ACME = "cell/certificates/acme/server.py"


def bare(tree: ast.AST) -> Iterator[str]:
    """What makes a client without a bound, or asks with one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            library = ast.unparse(node.func.value)
            if node.func.attr in BARE.get(library, ()):
                yield f"{library}.{node.func.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in BARE:
            yield from (each.name for each in node.names if each.name in BARE[node.module])


def whole_reads(tree: ast.AST) -> list[str]:
    """Of answers of http.client, which unpacks nothing: a read has to say how much."""
    begun = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".getresponse()")
    }
    reads = [
        ast.unparse(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "read"
        and not node.args
    ]
    return [each for each in reads if each in begun or each.endswith(".getresponse()")]


def test_every_client_is_one_of_those_with_bounds() -> None:
    asking = [path for path in SHIPPED if names(path) not in BOUNDED]
    assert not [f"{names(path)}: {each}" for path in asking for each in bare(parsed(path))]
    assert not [names(path) for path in asking if NEVER & set(imported(path))]


def test_what_is_read_of_the_standard_librarys_answers_has_a_bound() -> None:
    asking = [path for path in SHIPPED if ".getresponse()" in path.read_text()]
    assert {"cell/engines/http.py", "menagerie/serve.py"} <= {names(path) for path in asking}
    assert not [names(path) for path in asking if whole_reads(parsed(path))]


def test_the_library_for_acme_asks_through_the_bounds() -> None:
    """It makes a session of its own."""
    taking = [path for path in SHIPPED if "acme" in {n.split(".")[0] for n in imported(path)}]
    assert [names(path) for path in taking] == [TAKES_ACME]
    text = taking[0].read_text()
    assert text.count("ClientNetwork(") == text.count("answers.bind(self._net.session, ") == 1


def test_what_is_bare_is_found() -> None:
    tree = ast.parse("import httpx\nhttpx.get('x')\nwith httpx.AsyncClient() as c: pass\n")
    assert sorted(bare(tree)) == ["httpx.AsyncClient", "httpx.get"]
    assert list(bare(ast.parse("from requests import Session"))) == ["Session"]
    assert not list(bare(ast.parse("def ask(http: httpx.Client) -> None: http.get('x')")))
    text = "answer = c.getresponse()\nanswer.read()\nanswer.read(5)\nfile.read()"
    assert whole_reads(ast.parse(f"{text}\nc.getresponse().read()")) == [
        "answer",
        "c.getresponse()",
    ]
