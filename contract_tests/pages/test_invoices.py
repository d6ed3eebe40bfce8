"""The page of an invoice: for whoever has its link, without scripts and without signing in."""

from contract_tests import invoicing
from contract_tests.api.harness import House
from contract_tests.pages.browsing import Browser
from menagerie import credit_notes, invoice_books


def test_whoever_has_the_link_sees_the_invoice(house: House, browser: Browser) -> None:
    month = invoicing.starts_billing(house)
    tenant = house.tenant("Difference <b>Engines</b>", plan="team")
    invoicing.billed(house, month)
    invoice = invoicing.invoice_of(house, tenant, month)
    session = house.session(tenant.owner.id)
    (listed,) = house.get(f"{tenant.path}/invoices", session).json()["items"]
    link = listed["hosted_url"]
    path = link[link.index("/account/") :]
    page = browser.get(path)
    assert page.title == f"Invoice {invoice.number}"
    text = page.response.text
    for shown in ("Difference &lt;b&gt;Engines", "Plan:", "100.00", "VAT 19 %", "19.00", "119.00"):
        assert shown in text
    assert "<script" not in text
    assert "script-src" not in page.response.headers["content-security-policy"]
    assert page.texts["status"].startswith("To be paid until")
    pdf = listed["pdf_url"]
    assert f'href="{pdf[pdf.index("/v1/") :]}"' in text
    credit_notes.credit(house.services, invoice.number, ["1=10"], None, "for <b>you</b>")
    noted = house.get(f"{tenant.path}/invoices", session).json()["items"][0]
    url = noted["hosted_url"]
    of_note = browser.get(url[url.index("/account/") :])
    assert of_note.title == f"Credit note {noted['number']}"
    for shown in (invoice.number, "for &lt;b&gt;you", "11.90", "Settled"):
        assert shown in of_note.response.text
    assert "Taken off by credit notes" in browser.get(path).response.text
    invoice_books.pay(house.services, invoice.number)
    assert browser.get(path).texts["status"] == "Paid."
    for wrong in (path[:-3], f"{path}x", "/account/invoice", "/account/invoice?token=../v1/me"):
        page = browser.get(wrong)
        assert (page.response.status_code, page.title) == (404, "There is no such invoice")
    house.database.clock_offset *= 0
