"""Whether anything costs anything here, and what."""

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from menagerie import setting_values


class BillingSettings(BaseModel):
    money: Literal["on", "off"] = Field(
        "on", description="off: nothing costs anything, and usage, costs and caps are not offered"
    )
    price_list: str = Field(
        "", description="file with what things cost (TOML); empty: the list prices"
    )

    @field_validator("price_list")
    @classmethod
    def _prices_are_a_list(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_price_list)
