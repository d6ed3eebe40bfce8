"""Whatever is changed in a response that was good: nobody else comes in by it."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from contract_tests.saml import provider
from contract_tests.saml.attack_parts import evil_of
from contract_tests.saml.provider import ADA, EVE, SIGNER, expected, trust, xml
from control.sso.saml import responses
from control.sso.saml.documents import Element
from control.sso.saml.reasons import SamlRefused

GOOD = xml(provider.good())
BOTH = xml(provider.response(provider.signed_assertion(), signer=SIGNER))
PIECES = (
    *(b"<!---->", b"<?x?>", b"&#0;", b"&amp;", b"&lt;", b"<a/>", b"</a>", b"<![CDATA[x]]>", b"\0"),
    *(b"eve@example.com", b"eve@", b'ID="_assertion1"', b'xmlns="urn:x"', b"</saml:NameID>", b" "),
    *(b"\xef\xbb\xbf", b"<!DOCTYPE a>", "\u202e".encode(), b"\r\n", b"\t"),
)


def nobody_else(content: bytes) -> None:
    try:
        found = responses.accept(content, trust(), expected(), {})
    except SamlRefused:
        return
    assert (found.subject, found.email, found.name) == (ADA, ADA, "Ada Lovelace")
    assert found.groups == ("engineers", "admins")


@given(st.sampled_from([GOOD, BOTH]), st.data())
@settings(max_examples=100, deadline=None)
def test_changed_bytes(content: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 40))
        piece = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from(PIECES)))
        content = content[:at] + piece + content[at + cut :]
    nobody_else(content)


@given(st.sampled_from([GOOD, BOTH]), st.data())
@settings(max_examples=80, deadline=None)
def test_moved_copied_and_renamed_elements(content: bytes, data: st.DataObject) -> None:
    """Wrapping of every kind, also such as nobody has written about yet."""
    root = etree.fromstring(content)
    for _ in range(data.draw(st.integers(1, 5))):
        root = _changed(root, data)
    nobody_else(xml(root))


def _changed(root: Element, data: st.DataObject) -> Element:
    elements = [each for each in root.iter() if isinstance(each.tag, str)]
    one = data.draw(st.sampled_from(elements))
    other = data.draw(st.sampled_from(elements))
    act = data.draw(
        st.sampled_from(["copy", "evil", "move", "remove", "text", "tail", "id", "rename", "swap"])
    )
    if act == "copy":
        _put(other, copy.deepcopy(one), data)
    elif act == "evil":
        _put(other, evil_of(one, "same"), data)
    elif act == "move" and one is not root and other not in one.iter():
        _put(other, one, data)
    elif act == "remove" and (parent := one.getparent()) is not None:
        parent.remove(one)
    elif act == "text":
        one.text = EVE
    elif act == "tail" and one is not root:
        one.tail = EVE
    elif act == "id":
        one.set(data.draw(st.sampled_from(["ID", "Id", "id"])), data.draw(IDS))
    elif act == "rename":
        one.tag = other.tag
    elif act == "swap" and one is not root and other is not root:
        one.attrib.update(other.attrib)
    return root


IDS = st.sampled_from(["_assertion1", "_response1", "_evil", ""])


def _put(place: Element, moved: Element, data: st.DataObject) -> None:
    place.insert(data.draw(st.integers(0, len(place))), moved)
