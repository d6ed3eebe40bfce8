"""Hold OpenAPI documents to the rules of the house.

usage: python -m tools.lint_document FILE…     as openapi.yaml; exit status 1: a rule is broken
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from specserver import DocumentInvalid
from tools import usage
from tools.document_rules import layout, operations, policy, schemas
from tools.document_rules.reading import Fault, Text


def faults(path: Path) -> Iterator[Fault]:
    """Everything in the document that breaks a rule. An invalid document has that one fault."""
    try:
        text = Text(path)
    except DocumentInvalid as invalid:
        yield Fault("document", str(invalid))
        return
    info = text.raw["info"]
    if info.get("license", {}).get("identifier") != "Apache-2.0":
        yield Fault("info", "the licence is Apache-2.0, by its identifier")
    yield from operations.check(text)
    yield from schemas.check(text)
    if len(text.files) > 1:
        yield from layout.check(text)
    if text.has_policy:
        yield from schemas.check_shared(text)
        yield from policy.check(text)


def root_of(path: Path) -> Path:
    """`openapi.yaml` for a file in `openapi/` beside it: the rules are those of the whole."""
    root = path.parent.parent / f"{path.parent.name}.yaml"
    return root if path.parent.name and root.is_file() else path


def main(paths: list[str]) -> int:
    if not paths:
        usage.is_asked(["--help"], __doc__)
        return 2
    if usage.is_asked(paths, __doc__):
        return 0
    roots = dict.fromkeys(map(root_of, map(Path, paths)))
    found = [f"{path}: {fault}" for path in roots for fault in faults(path)]
    print("\n".join(found) if found else f"{len(roots)} documents in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
