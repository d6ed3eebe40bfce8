"""Names are the field's: no metaphor that a newcomer has to ask about, no class name twice."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

HOUSE = {
    "cell", "clients", "control", "gateway", "handlers", "instance_services", "menagerie", "pages",
    "specserver", "storage",
}  # fmt: skip
# What is meant, in place of each.
INSTEAD = {
    "announced": "notified, or told by whom",
    "bell": "notifier",
    "crowds": "connection counts",
    "desk": "what it serves",
    "entrance": "what is checked there",
    "resident": "hosted",
    "standing": "what it came to, such as a resolved credential",
    "standings": "a cache, and of what",
    "visit": "request context",
    "way": "pipeline, or how it is done",
}
# As names of functions and arguments they are plain verbs and nouns.
IN_MODULES_AND_CLASSES = {
    "apart": "isolation, or what is kept from what",
    "hold": "lock, pause or lease",
    "places": "slots, or limits",
}
# What the requirement calls a sync that is turned round.
REQUIRED = "way_back"
# Methods that a library calls by these names, each with the interface that it is of.
OF_LIBRARIES = {
    f"control/sso/scim/filters.py: visit_{node}": "scim2_models.path.FilterVisitor"
    for node in ("comparison", "logical_expr", "not", "present", "value_path")
}
PHRASES = {"in_force": "valid, or usable", "act_key": "operation_key", "let_go": "release"}


def named(path: Path) -> Iterator[str]:
    """The module, and what it defines: classes, functions, arguments, variables, attributes."""
    yield path.stem
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def modules_and_classes(path: Path) -> Iterator[str]:
    yield path.stem
    yield from (node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))


def words(name: str) -> set[str]:
    own = name.replace(REQUIRED, "")
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", own)}


def test_no_name_is_a_metaphor() -> None:
    found = {
        f"{names(path)}: {name}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] in HOUSE
        for name in named(path)
        if words(name) & INSTEAD.keys() or name.strip("_") in PHRASES
    }
    assert not found - OF_LIBRARIES.keys(), f"write instead: {INSTEAD | PHRASES}"
    # An exception that nothing needs any more is none.
    assert OF_LIBRARIES.keys() <= found


def test_no_module_or_class_is_named_loosely() -> None:
    found = {
        f"{names(path)}: {name}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] in HOUSE
        for name in modules_and_classes(path)
        if words(name) & IN_MODULES_AND_CLASSES.keys()
    }
    assert not found, f"write instead: {IN_MODULES_AND_CLASSES}"


def class_names() -> Iterator[tuple[str, str]]:
    """Each class that others may name, with its module."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] in HOUSE:
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, names(path)


def test_a_class_name_means_one_thing() -> None:
    """In all rooms; where one meaning has a class on either side of a wire, that is a double."""
    modules = defaultdict(set)
    counted: Counter[str] = Counter()
    for name, module in class_names():
        modules[name].add(module)
        counted[name] += 1
    found = {name: modules[name] for name, count in counted.items() if count > 1}
    assert found.keys() == DOUBLED.keys(), found


OF_PROBLEMS = "what the service raises, and what its clients raise when they are told so"
# Each with the meaning that its classes share.
DOUBLED = {
    "Cell": "the program, and the control plane's record of it",
    "Credential": "what a cell keeps, and what a client is told of it",
    "Database": "the one database of a program: the cell's, and the control plane's",
    "Document": "an OpenAPI document, as it is served and as a client reads it",
    "Migration": "into an instance, as its cell runs it and as the control plane records it",
    "Operation": "of such a document; and of background work: the glossary has both",
    "SealError": "of a Sealer",
    "Sealer": "encrypts what is kept: a cell's, and the control plane's",
    "Session": "statements over one connection, at either end of it",
    "Size": "of an instance, as plans sell it and as a cell enforces it",
    "User": "a person who has an account, and what SCIM says of them",
    **dict.fromkeys(
        (
            "Conflict", "Forbidden", "Invalid", "NotFound", "Problem", "TooManyRequests",
            "Unauthenticated",
        ),
        OF_PROBLEMS,
    ),
}  # fmt: skip
