"""Documents that readers read differently, that reach beyond themselves, or that are too much."""

from typing import Final

from lxml import etree

from contract_tests.saml import provider
from contract_tests.saml.attack_parts import Made, makes
from contract_tests.saml.provider import (
    EVE,
    good,
    response,
    sign,
    signed_assertion,
    xml,
)


@makes
def split_texts() -> Made:
    """Comments and the like, which cut a text in two for a reader that takes its first part."""
    root = xml(response(signed_assertion(email=EVE, name_id=f"{EVE}.attacker.example")))
    for name, inside in (
        ("comment", b"<!---->"),
        ("processing instruction", b"<?x?>"),
        ("entity", b"&x;"),
    ):
        cut = root.replace(b"eve@example.com.attacker", b"eve@example.com" + inside + b".attacker")
        assert cut != root
        yield f"{name} in the NameID", cut, "document_refused"
    element = etree.fromstring(provider.assertion_xml(name_id=f"<b>{EVE}</b>"))
    sign(element)
    yield "an element in the NameID", xml(response(element)), "document_refused"
    for end in (b"<!-- -->", b"<?x y?>"):
        yield "behind the root", xml(good()) + end, "document_refused"
        yield "before the root", end + xml(good()), "document_refused"


_BOMB: Final = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@makes
def entities() -> Made:
    content = xml(good()).decode()
    for name, dtd in (
        ("file", '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        ("URL", '<!DOCTYPE r [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]>'),
        ("parameter", '<!DOCTYPE r [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x"> %x;]>'),
        ("bomb", f'<!DOCTYPE r [<!ENTITY l0 "ha">{_BOMB}<!ENTITY x "&l9;">]>'),
        ("quadratic", f'<!DOCTYPE r [<!ENTITY x "{"a" * 50_000}">]>'),
        ("external DTD", '<!DOCTYPE r SYSTEM "http://127.0.0.1:9/x.dtd">'),
        ("ID by the DTD", "<!DOCTYPE r [<!ATTLIST saml:Issuer x ID #IMPLIED>]>"),
        ("default attribute", '<!DOCTYPE r [<!ATTLIST saml:NameID Format CDATA "x">]>'),
        ("without a DTD", ""),
    ):
        cut = content.replace("Ada Lovelace", "&x;")
        yield f"entity: {name}", (dtd + cut).encode(), "document_refused"
    for encoding in ("utf-16", "utf-32", "utf-7"):
        told = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE r [<!ENTITY x "a">]>{content}'
        yield f"a DTD in {encoding}", told.encode(encoding), "document_refused"
    included = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd"/>'
    element = etree.fromstring(provider.assertion_xml(name_id=included))
    sign(element)
    yield "XInclude", xml(response(element)), "document_refused"


@makes
def huge() -> Made:
    content = xml(good())
    yield "large", content.replace(b"Ada Lovelace", b"A" * 300_000), "too_large"
    deep = b"<a>" * 100 + b"</a>" * 100
    yield "deep", content.replace(b"Ada Lovelace", deep), "too_large"
    deeper = b"<a>" * 20_000 + b"</a>" * 20_000
    yield "deeper than the parser goes", content.replace(b"Ada Lovelace", deeper), "too_large"
    wide = b"<a/>" * 20_000
    yield "wide", content.replace(b"Ada Lovelace", wide), "too_large"
    attributes = " ".join(f'a{n}="1"' for n in range(2_000)).encode()
    yield (
        "attributes",
        content.replace(b"<saml:Issuer>", b"<saml:Issuer " + attributes + b">"),
        ("too_large"),
    )
    names = " ".join(f'xmlns:a{n}="urn:{n}"' for n in range(5_000)).encode()
    crowd = content.replace(b"<samlp:Response ", b"<samlp:Response " + names + b" ", 1)
    yield "namespaces", crowd.replace(b"ada@", b"eve@"), "too_large"


@makes
def no_documents() -> Made:
    for name, content in (
        ("nothing", b""),
        ("no XML", b"SAMLResponse"),
        ("JSON", b"{}"),
        ("cut off", xml(good())[:-10]),
        ("twice", xml(good()) * 2),
        ("zeros", b"\0" * 100),
        ("not UTF-8", xml(good()).replace(b"Ada", b"\xff\xfe")),
        ("metadata", provider.metadata_xml()),
        ("an assertion alone", xml(signed_assertion())),
        ("SAML 1.1", b'<Response xmlns="urn:oasis:names:tc:SAML:1.0:protocol"/>'),
    ):
        yield name, content, "document_refused"
