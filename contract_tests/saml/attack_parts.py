"""What attacks are made of: a list of them, and a copy of something that is about Eve instead."""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lxml import etree

from contract_tests.saml.provider import (
    EVE,
)
from control.sso.saml.documents import DS, Element, tag


class Attack(NamedTuple):
    name: str
    xml: bytes
    reasons: frozenset[str]


Made = Iterator[tuple[str, bytes, str]]
"""Of each: its name, the response, and the reasons, told apart by spaces."""
MAKERS: list[Callable[[], Made]] = []


def makes(maker: Callable[[], Made]) -> Callable[[], Made]:
    MAKERS.append(maker)
    return maker


def part(root: Element, namespace: str, name: str) -> Element:
    found = next(root.iter(tag(namespace, name)))
    assert isinstance(found, etree._Element)
    return found


def evil_of(element: Element, which: str) -> Element:
    """A copy that is about Eve, without its signatures; `which` ID it has."""
    evil = copy.deepcopy(element)
    for each in list(evil.iter(tag(DS, "Signature"))):
        if (parent := each.getparent()) is not None:
            parent.remove(each)
    for each in evil.iter():
        if each.text and "ada" in each.text:
            each.text = EVE
    if which == "none":
        del evil.attrib["ID"]
    elif which == "new":
        evil.set("ID", "_evil")
    return evil
