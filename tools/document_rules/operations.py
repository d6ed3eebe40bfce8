"""What every operation says of itself: its name, its words, its examples and its errors."""

import re
from collections import Counter
from collections.abc import Iterator

from specserver.replies import is_json
from tools.document_rules.reading import Fault, Operation, Text, examples

_ID = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_SUMMARY_LENGTH = 60
_LINE_LENGTH = 110
# Which cannot be broken.
_REFERENCE = re.compile(r"\s*\$ref: \S+")
# As tools/new_operation.py leaves what it cannot know.
_UNWRITTEN = re.compile(r"\bTODO\b")


def check(text: Text) -> Iterator[Fault]:
    yield from _lines(text)
    described = {tag["name"] for tag in text.raw.get("tags", ()) if tag.get("description")}
    for operation in text.operations:
        yield from _name(operation, described)
        yield from _words(operation)
        yield from _examples(operation, text)
    yield from _error_forms(text)


def _lines(text: Text) -> Iterator[Fault]:
    for path, lines in text.files.items():
        for number, line in enumerate(lines, 1):
            place = f"{path.name} line {number}"
            if len(line) > _LINE_LENGTH and not _REFERENCE.fullmatch(line):
                yield Fault(place, f"has {len(line)} characters; {_LINE_LENGTH} are enough")
            if _UNWRITTEN.search(line):
                yield Fault(place, "says TODO: write it")


def _name(operation: Operation, described: set[str]) -> Iterator[Fault]:
    if not _ID.fullmatch(operation.id):
        yield operation.fault("write the operationId as noun.verb, like instances.pause")
    tags = operation.document.get("tags", [])
    if len(tags) != 1:
        yield operation.fault(f"has {len(tags)} tags; it needs the one of its module")
        return
    module = re.sub(r"[^a-z0-9]+", "_", tags[0].lower())
    if module != operation.id.partition(".")[0]:
        yield operation.fault(f"its tag is {tags[0]}, so its operationId begins with {module}")
    if tags[0] not in described:
        yield operation.fault(f"describe the tag {tags[0]} under tags")


def _words(operation: Operation) -> Iterator[Fault]:
    summary = operation.document.get("summary", "")
    if not summary:
        yield operation.fault("say in a summary what it does")
    if len(summary) > _SUMMARY_LENGTH or summary.endswith("."):
        yield operation.fault(f"a summary has {_SUMMARY_LENGTH} characters and no full stop")
    if not operation.document.get("description"):
        yield operation.fault("say in a description when to use it and what happens next")
    for parameter in operation.document.get("parameters", ()):
        if not parameter.get("description"):
            yield operation.fault(f"describe the parameter {parameter['name']}")
    for status, response in operation.responses.items():
        if not response.get("description"):
            yield operation.fault(f"describe the response {status}")


def _examples(operation: Operation, text: Text) -> Iterator[Fault]:
    contents = [("the request", *one) for one in operation.request_contents()]
    for status, response in operation.responses.items():
        contents += [(f"the {status}", *one) for one in response.get("content", {}).items()]
    for what, media_type, content in contents:
        if not is_json(media_type):
            continue
        given = examples(content)
        if not given:
            yield operation.fault(f"give an example of {what}")
        schema = text.schemas.of(content.get("schema", True))
        for example in given:
            for violation in schema.violations(example):
                pointer, message = violation["pointer"] or "it", violation["message"]
                yield operation.fault(
                    f"the example of {what} breaks its schema: {pointer} {message}"
                )


def _error_forms(text: Text) -> Iterator[Fault]:
    """One form of error in a document: where one is, all are."""
    forms: Counter[str] = Counter()
    for operation in text.operations:
        for status, response in operation.failures.items():
            if not response.get("content"):
                yield operation.fault(f"say what a {status} looks like")
            forms.update(response.get("content", {}).keys())
    if len(forms) > 1:
        rare = ", ".join(form for form, _ in forms.most_common()[1:])
        yield Fault("errors", f"are answered as {forms.most_common(1)[0][0]}, and also as {rare}")
