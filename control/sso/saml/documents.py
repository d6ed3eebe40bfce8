"""XML that others send: read without anything that XML can do beside elements and text.

No DTD, so no entities; no comments and no processing instructions, which split texts in two for
some readers and not for others; UTF-8 alone; bounded in size, depth and number of elements.
"""

from typing import Final

from lxml import etree

SAML: Final = "urn:oasis:names:tc:SAML:2.0:assertion"
SAMLP: Final = "urn:oasis:names:tc:SAML:2.0:protocol"
METADATA: Final = "urn:oasis:names:tc:SAML:2.0:metadata"
DS: Final = "http://www.w3.org/2000/09/xmldsig#"
XENC: Final = "http://www.w3.org/2001/04/xmlenc#"
XENC11: Final = "http://www.w3.org/2009/xmlenc11#"
EXC_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"

RESPONSE_BYTES_MAX: Final = 256 << 10
METADATA_BYTES_MAX: Final = 512 << 10
DEPTH_MAX: Final = 40
ELEMENTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 40
"""Of one element."""
NAMESPACES_MAX: Final = 500
"""Declarations in all: each is carried along wherever an element is written anew."""

Element = etree._Element  # noqa: SLF001 -- lxml's only name for the type


class XmlRefused(ValueError):  # noqa: N818 -- a fact about a document
    """It is not read; the message says what it must not have."""


class DocumentTooLarge(XmlRefused):
    pass


def read(xml: bytes, bytes_max: int = RESPONSE_BYTES_MAX) -> Element:
    """The root. Raises XmlRefused, DocumentTooLarge."""
    if len(xml) > bytes_max:
        raise DocumentTooLarge(f"must have at most {bytes_max >> 10} KiB")
    try:
        # A byte order mark would be in front of the declaration.
        text = xml.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise XmlRefused("must be UTF-8") from None
    for mark, name in (("<!DOCTYPE", "a DTD"), ("<!ENTITY", "entities"), ("\0", "a NUL")):
        if mark in text:
            raise XmlRefused(f"must not have {name}")
    if text.count("xmlns") > NAMESPACES_MAX:
        raise DocumentTooLarge(f"must have at most {NAMESPACES_MAX} declarations of namespaces")
    try:
        # What the declaration says of an encoding is overruled: a reader that believed it would
        # read another text.
        root = etree.fromstring(text.encode(), parser())
    except etree.XMLSyntaxError as error:
        if "depth" in str(error) or "huge" in str(error).lower():
            raise DocumentTooLarge(f"must not be nested more than {DEPTH_MAX} deep") from None
        raise XmlRefused("is not well-formed XML") from None
    _check(root)
    return root


def tag(namespace: str, name: str) -> str:
    return f"{{{namespace}}}{name}"


def children(parent: Element, namespace: str, name: str) -> list[Element]:
    return [child for child in parent if child.tag == tag(namespace, name)]


def child(parent: Element, namespace: str, name: str) -> Element | None:
    """The only child of that name. Raises XmlRefused where there are several."""
    found = children(parent, namespace, name)
    if len(found) > 1:
        raise XmlRefused(f"has more than one {name} in {etree.QName(parent).localname}")
    return found[0] if found else None


def text_of(element: Element) -> str:
    """Its whole text, stripped. Raises XmlRefused where something else is in it."""
    if len(element):
        raise XmlRefused(f"has elements within {etree.QName(element).localname}")
    return (element.text or "").strip()


def parser() -> etree.XMLParser:
    """A new one: a parser is not for two threads."""
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        recover=False,
    )


def _check(root: Element) -> None:
    info = root.getroottree().docinfo
    if info.internalDTD is not None or info.externalDTD is not None:
        raise XmlRefused("must not have a DTD")
    if root.getprevious() is not None or root.getnext() is not None:
        raise XmlRefused("must not have comments or processing instructions")
    waiting, seen = [(root, 1)], 0
    while waiting:
        element, depth = waiting.pop()
        seen += 1
        if not isinstance(element.tag, str):
            raise XmlRefused("must not have comments, processing instructions or entities")
        if depth > DEPTH_MAX or seen > ELEMENTS_MAX:
            raise DocumentTooLarge(
                f"must have at most {ELEMENTS_MAX:,} elements, nested {DEPTH_MAX} deep"
            )
        if len(element.attrib) > ATTRIBUTES_MAX:
            raise DocumentTooLarge(f"must have at most {ATTRIBUTES_MAX} attributes in an element")
        waiting.extend((child, depth + 1) for child in element)
