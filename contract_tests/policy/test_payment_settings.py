"""The settings of a payment provider: both files of it or none, and no secret is repeated."""

from pathlib import Path

import pytest

from menagerie.errors import SettingsError
from menagerie.payment_settings import PaymentSettings, stripe_of


def test_the_account_is_read_from_files(tmp_path: Path) -> None:
    key, secret = tmp_path / "key", tmp_path / "secret"
    key.write_text("sk_live_abc\n")
    secret.write_text("whsec_abc\n")
    both = {"stripe_api_key_file": str(key), "stripe_webhook_secret_file": str(secret)}
    found = stripe_of(PaymentSettings.model_validate(both), "EUR")
    assert found is not None
    assert (found.api_key, found.webhook_secret) == ("sk_live_abc", "whsec_abc")
    assert "abc" not in repr(found)
    assert stripe_of(PaymentSettings.model_validate({}), "EUR") is None
    for given in both.items():
        with pytest.raises(SettingsError, match="set both"):
            stripe_of(PaymentSettings.model_validate(dict([given])), "EUR")
    with pytest.raises(SettingsError, match="JPY"):
        stripe_of(PaymentSettings.model_validate(both), "JPY")
    with pytest.raises(ValueError, match="begins with sk_ or rk_") as refused:
        PaymentSettings.model_validate({"stripe_api_key_file": str(secret)})
    assert "whsec_abc" not in str(refused.value)
