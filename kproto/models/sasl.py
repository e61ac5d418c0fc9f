"""The first bytes of a connection with SASL PLAIN, in the two framings that Kafka has used.

* SaslHandshake v0 (Kafka 0.10.0, KIP-43), then a frame that contains only the token: four bytes with the
  token's length, and the token, without a request header. The broker answers with an empty frame, or closes
  the connection.

* SaslHandshake v1 (Kafka 1.0, KIP-152), then the token in a SaslAuthenticate request. The response has an
  error code.

RFC 4616 defines the token of PLAIN. librdkafka uses the newest framing that the broker supports. sarama
ignores what the broker supports, and uses the version in Net.SASL.Version: by default 1 since sarama 1.41,
and 0 before.
"""

from __future__ import annotations

from ..errors import ConfigError
from ..messages.headers import encode_request
from ..messages.sasl_authenticate import SaslAuthenticateRequest
from ..messages.sasl_handshake import SaslHandshakeRequest
from ..wire.frame import frame


def plain_token(user: str, password: str, identity: str = "") -> bytes:
    """Return the PLAIN token.

    Raises ConfigError if an argument contains NUL, the character that separates the parts of the token.
    """
    for name, text in (("identity", identity), ("user", user), ("password", password)):
        if "\0" in text:
            raise ConfigError(name, text, "a string without NUL characters")
    return f"{identity}\0{user}\0{password}".encode()


def plain_frames(handshake: int, user: str, password: str, client_id: str) -> tuple[bytes, bytes]:
    """Return the two frames of a PLAIN login: SaslHandshake in version `handshake`, then the PLAIN token.

    Raises ConfigError if `user` or `password` contains NUL.
    """
    handshake_body = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), handshake, 1, client_id)
    token = plain_token(user, password)
    if handshake == 0:
        return frame(handshake_body), frame(token)
    token_body = encode_request(SaslAuthenticateRequest(auth_bytes=token), 0, 2, client_id)
    return frame(handshake_body), frame(token_body)
