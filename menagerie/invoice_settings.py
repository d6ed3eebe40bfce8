"""Who issues invoices; without anybody, none are made."""

from pydantic import BaseModel, Field, field_validator

from menagerie import setting_values


class InvoiceSettings(BaseModel):
    invoice_issuer: str = Field(
        "", description="file with who issues invoices (TOML); empty: no invoices are made"
    )

    @field_validator("invoice_issuer")
    @classmethod
    def _issuer_is_one(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_invoice_issuer)
