"""What the site is made of: each file of the repository that is a page, and where it goes."""

import gzip
import posixpath
import re
import shutil
from pathlib import Path

import orjson

from menagerie.contract import PUBLIC_EXTENSIONS
from specserver.document import Document
from specserver.reference import StaticPages

HERE = Path(__file__).parent
AT_THE_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "LICENSE.txt",
    "openapi.yaml": "openapi.yaml",
}
DECISIONS = "docs/decisions"
# A token that somebody enters must not go to whoever serves the site.
SERVERS = [{"url": "http://127.0.0.1:8080", "description": "A service of your own: make serve."}]
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")


def stage(root: Path, into: Path) -> None:
    """Everything that the generator reads, with links that lead to where it is now."""
    places = _places(root)
    for source, place in places.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md" and source != DECISIONS:
            target.write_text(_relinked((root / source).read_text(), source, places))
        elif source != DECISIONS:
            shutil.copy(root / source, target)
    (into / places[DECISIONS]).write_text(_index(root / DECISIONS))
    _write_reference(root / "openapi.yaml", into / "reference")
    scripts = into / "javascripts"
    scripts.mkdir()
    shutil.copy(HERE / "mermaid.js", scripts)
    shutil.copy(HERE / "mermaid.LICENSE.txt", scripts)
    packed = (HERE / "mermaid.min.js.gz").read_bytes()
    (scripts / "mermaid.min.js").write_bytes(gzip.decompress(packed))


def _places(root: Path) -> dict[str, str]:
    """Path in the repository to path in the site."""
    files = [path for folder in ("docs", "openapi") for path in sorted((root / folder).rglob("*"))]
    names = [str(path.relative_to(root)) for path in files if path.is_file()]
    found = {name: name.removeprefix("docs/") for name in names}
    return {**AT_THE_ROOT, **found, DECISIONS: "decisions/index.md"}


def _relinked(text: str, source: str, places: dict[str, str]) -> str:
    """Links to what is no page stay as they are, and the generator refuses them."""

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if target not in places:
            return link[1]
        return posixpath.relpath(places[target], posixpath.dirname(places[source]) or ".")

    return _LINK.sub(moved, text)


def _index(folder: Path) -> str:
    """The list of decisions, by the first line of each."""
    titles = {path.name: path.read_text().partition("\n")[0] for path in folder.glob("*.md")}
    rows = [f"- [{title.removeprefix('# ')}]({name})" for name, title in sorted(titles.items())]
    return "\n".join(["# Decisions", "", "What was decided, and why.", "", *rows, ""])


def _write_reference(document: Path, into: Path) -> None:
    """The reference as a service shows it at /docs, with a document of its own beside it."""
    shown = Document.load(document).public(PUBLIC_EXTENSIONS) | {"servers": SERVERS}
    for path, content in StaticPages(shown, docs=True, front=None).pages.items():
        name = "index.html" if path == "/docs" else path.removeprefix("/")
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.plain())
    assert orjson.loads((into / "openapi.json").read_bytes())["servers"] == SERVERS
