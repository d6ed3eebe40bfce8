"""What an ACME server answers is bounded, not unpacked, and leads nowhere else."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cell.certificates.acme import answers
from cell.certificates.acme.answers import BYTES_MAX
from cell.certificates.acme.ledger import DomainState, Ledger
from cell.certificates.acme.problems import TEXT_MAX, AcmeError
from cell.database import Database
from cell.sealing import Sealer
from contract_tests.cell.certificates.directory import Answer, Directory, problem, running

HOST = "db.example.com"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with running(tmp_path) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Directory]:
    """A server of another origin, which nobody is to ask."""
    folder = tmp_path / "other"
    folder.mkdir()
    with running(folder) as made:
        yield made
        assert made.asked == []


def test_a_directory_is_read(directory: Directory) -> None:
    directory.connect()
    assert directory.accepted == ["identity"]


def test_a_compressed_answer_is_refused(directory: Directory) -> None:
    directory.content = gzip.compress(directory.whole)
    directory.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        directory.connect()
    assert "which was not asked for" in str(refused.value.__cause__)


def test_an_answer_beyond_the_bound_is_refused(directory: Directory) -> None:
    directory.content = directory.whole.ljust(BYTES_MAX)
    directory.connect()
    directory.content += b" "
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        directory.connect()
    assert "larger than 1 MiB" in str(refused.value.__cause__)


def test_an_answer_that_takes_too_long_is_refused(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "WITHIN_S", -1.0)
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        directory.connect()
    assert "did not end in time" in str(refused.value.__cause__)


# The server chooses URLs; what only the cell's host can reach is not asked for it.


@pytest.mark.parametrize("path", ["/directory", "/newNonce", "/newOrder"])
@pytest.mark.parametrize("status", [301, 307])
def test_no_redirect_is_followed(
    directory: Directory, other: Directory, path: str, status: int
) -> None:
    for where in (f"{other.origin}/x", f"http://127.0.0.1:{other.server_port}/x", "/x"):
        directory.answers[path] = Answer(status, headers={"Location": where})
        with pytest.raises(AcmeError, match="redirects, which is not followed") as refused:
            directory.connect().order(HOST)
        # Of the whole server, where it is the directory; else of the order.
        assert refused.value.kind == ("server" if path == "/directory" else "order")
    assert {at for _, at in directory.asked} <= {"/directory", "/newNonce", "/newOrder"}


def test_no_url_of_another_origin_is_asked_for(directory: Directory, other: Directory) -> None:
    order = {"status": "pending", "finalize": f"{directory.origin}/f"}
    for where, why in (
        (f"{other.origin}/x", "of another origin"),
        ("https://localhost/x", "of another origin"),
        (f"https://127.0.0.1:{directory.server_port}/x", "of another origin"),
        (f"http://localhost:{directory.server_port}/x", "that is not https"),
        ("file:///etc/hostname", "that is not https"),
        ("/x", "that is not https"),
        ("https://[x", "that is not https"),
        ("https://localhost:99999/x", "that is not https"),
    ):
        server = directory.connect()
        for ask in (server.look, server.answer, server.download):
            with pytest.raises(AcmeError, match=why) as refused:
                ask(where)
            assert refused.value.kind == "order"
        content = json.dumps({**order, "authorizations": [where]}).encode()
        directory.answers["/o"] = Answer(200, content)
        with pytest.raises(AcmeError, match=why):
            server.look(f"{directory.origin}/o")
        directory.urls["newOrder"] = where
        with pytest.raises(AcmeError, match=why):
            directory.connect().order(HOST)
    # Its own is asked for, however it is written.
    directory.answers["/o"] = Answer(200, json.dumps({**order, "authorizations": []}).encode())
    upper = directory.origin.replace("localhost", "LOCALHOST")
    assert server.look(f"{upper}/o").status == "pending"


def test_a_directory_that_is_not_https_is_not_asked(other: Directory) -> None:
    with pytest.raises(AcmeError, match="a URL that is not https") as refused:
        other.connect(f"http://127.0.0.1:{other.server_port}/directory")
    assert refused.value.kind == "server"


def test_of_many_authorizations_a_few_are_asked_for(directory: Directory) -> None:
    """An order is of one name; a thread asks for each of them."""
    urls = [f"{directory.origin}/a/{number}" for number in range(50)]
    order = {"status": "pending", "finalize": f"{directory.origin}/f", "authorizations": urls}
    directory.answers["/o"] = Answer(200, json.dumps(order).encode())
    name = {"type": "dns", "value": HOST}
    done = json.dumps({"status": "valid", "identifier": name, "challenges": []}).encode()
    directory.answers |= {f"/a/{number}": Answer(200, done) for number in range(50)}
    assert directory.connect().look(f"{directory.origin}/o").proofs == ()
    assert sum(path.startswith("/a/") for _, path in directory.asked) < 10


# What it says is kept, logged, told to the control plane and shown to whom the domain belongs.


@pytest.mark.parametrize(
    "said", [rb"bad \u0000 x", rb"bad \ud800 x", rb"\u202ebad x", rb"bad \u001b[2J\nx", b"x" * 9999]
)
def test_what_the_server_says_is_made_printable(
    directory: Directory, tmp_path: Path, said: bytes
) -> None:
    directory.answers["/newOrder"] = problem(said)
    with pytest.raises(AcmeError) as refused:
        directory.connect().order(HOST)
    text = refused.value.text
    assert text.isprintable()
    assert "unauthorized" in text
    assert len(text) < 2 * TEXT_MAX
    ledger = Ledger(Database(tmp_path / "cell.db"), Sealer(b"k" * 32, "test"))
    ledger.keep(HOST, DomainState(reason=text))
    assert ledger.state(HOST).reason == text


def test_terms_are_named_within_bounds(directory: Directory) -> None:
    terms = "https://acme.example/" + "\x1b" * 9999
    content = {**directory.urls, "meta": {"termsOfService": terms}}
    directory.content = json.dumps(content).encode()
    with pytest.raises(AcmeError, match="terms of service") as refused:
        directory.connect().register()
    assert refused.value.text.isprintable()
    assert len(refused.value.text) < 2 * TEXT_MAX
