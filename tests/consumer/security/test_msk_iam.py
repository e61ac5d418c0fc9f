"""Tokens for AWS MSK are signed by AWS's package, without a request to AWS."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("aws_msk_iam_sasl_signer")

from consumer.security.failures import NoToken
from consumer.security.msk_iam import MskIamTokenProvider
from consumer.security.options import security_options
from consumer.security.tokens import TokenSource
from kproto.errors import ConfigError

pytestmark = pytest.mark.thorough  # The import of boto3 takes seconds.
SECRET = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text(
        f"[orders]\naws_access_key_id = AKIDORDERS\naws_secret_access_key = {SECRET}\n"
    )


def query_of(token: str) -> dict[str, list[str]]:
    parts = urlsplit(urlsafe_b64decode(token + "==").decode())
    assert parts.hostname == "kafka.eu-west-1.amazonaws.com"
    return parse_qs(parts.query)


def test_a_token_is_signed_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    settings = security_options(
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": MskIamTokenProvider("eu-west-1"),
        }
    )
    assert settings.tokens is not None
    token = settings.tokens.blocking()
    query = query_of(token.value.reveal())
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert token.expires_at is not None
    assert 800 < token.expires_at - time.time() <= 900


def test_a_token_is_signed_with_the_credentials_of_a_profile() -> None:
    token = TokenSource(MskIamTokenProvider("eu-west-1", profile="orders")).blocking()
    assert query_of(token.value.reveal())["X-Amz-Credential"][0].startswith("AKIDORDERS/")


def test_missing_credentials_are_an_error_of_the_login() -> None:
    with pytest.raises(NoToken, match="the token provider failed"):
        TokenSource(MskIamTokenProvider("eu-west-1", profile="unknown")).blocking()


def test_invalid_arguments_are_named() -> None:
    for region in ("", None):
        with pytest.raises(ConfigError, match=r"^region="):
            MskIamTokenProvider(region)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="profile is also set"):
        MskIamTokenProvider("eu-west-1", profile="a", role_arn="b")
