"""AWS MSK's IAM access control: tokens that are signed with AWS credentials.

    Consumer(
        "b-1.example.kafka.eu-west-1.amazonaws.com:9098",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=MskIamTokenProvider("eu-west-1"),
    )

The tokens are made by AWS's package aws-msk-iam-sasl-signer-python (the extra `msk`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kproto.errors import ConfigError, MissingExtra

from .tokens import Token


class MskIamTokenProvider:
    """A token provider for clusters of MSK in `region`, such as "eu-west-1". Thread-safe.

    By default the credentials are those that boto3 finds (environment, profile, role of the EC2 instance).
    `profile` or `role_arn` selects the credentials of a profile, or of a role for a session named
    `session_name`.

    The credentials are looked up for each token, which is valid for 15 minutes. Raises ConfigError,
    MissingExtra.
    """

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        session_name: str = "kproto",
    ) -> None:
        for name, value in (("region", region), ("profile", profile), ("role_arn", role_arn)):
            if (value is not None or name == "region") and (not isinstance(value, str) or not value):
                raise ConfigError(name, value, "a string that is not empty")
        if profile is not None and role_arn is not None:
            raise ConfigError("role_arn", role_arn, "not together with profile")
        try:
            self._signer: Any = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
        except ImportError:
            package = "aws-msk-iam-sasl-signer-python"
            raise MissingExtra("consumer.security.msk_iam.MskIamTokenProvider", package, "msk") from None
        self._region, self._profile, self._role = region, profile, role_arn
        self._session_name = session_name

    def __call__(self) -> Token:
        """Return a new token. Raises the errors of boto3, for example if there are no credentials."""
        if self._profile is not None:
            answer = self._signer.generate_auth_token_from_profile(self._region, self._profile)
        elif self._role is not None:
            answer = self._signer.generate_auth_token_from_role_arn(
                self._region, self._role, self._session_name
            )
        else:
            answer = self._signer.generate_auth_token(self._region)
        token, expires_at_ms = answer
        return Token(token, expires_at_ms / 1000)
