"""Which placement the cell is for, what is signed for it, and who may report leaked keys."""

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from menagerie import setting_values


class ComplianceSettings(BaseModel):
    cell_placement: Literal["shared", "secure"] = Field(
        "shared", description="placement of all instances of the cell: shared or secure"
    )
    baa_text: str = Field(
        "", description="file with the text of the BAA that owners sign; empty: the template"
    )

    leak_report_keys: str = Field(
        "",
        description="file with the public keys of who may report leaked API keys, as GitHub answers"
        " them; empty: nobody may",
    )

    @field_validator("baa_text")
    @classmethod
    def _baa_is_an_agreement(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_agreement)

    @field_validator("leak_report_keys")
    @classmethod
    def _keys_are_public_keys(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_public_keys)
