"""How a client says who it is, before anything else on a connection: SASL PLAIN, in Kafka's two ways.

* SaslHandshake v0 (since 0.10.0, KIP-43), and then the token as a bare frame: four bytes of length and the
  bytes, no header, answered by an empty frame, or by the end of the connection.
* SaslHandshake v1 (since 1.0, KIP-152), and then the token inside of SaslAuthenticate, which has an error.

The token is RFC 4616's. Which way a client goes is its own affair: librdkafka looks what the broker offers,
sarama's Net.SASL.Version says it (1 by default since 1.41, 0 before), whatever the broker offers.
"""

from __future__ import annotations

from ..errors import ConfigError
from ..messages.headers import encode_request
from ..messages.sasl_authenticate import SaslAuthenticateRequest
from ..messages.sasl_handshake import SaslHandshakeRequest
from ..wire.frame import frame


def plain_token(user: str, password: str, identity: str = "") -> bytes:
    """What PLAIN says. Raises ConfigError for a zero character, which separates the three."""
    for name, text in (("identity", identity), ("user", user), ("password", password)):
        if "\0" in text:
            raise ConfigError(name, text, "anything without a zero character")
    return f"{identity}\0{user}\0{password}".encode()


def plain_frames(handshake: int, user: str, password: str, client_id: str) -> tuple[bytes, bytes]:
    """The two frames of PLAIN: the handshake in that version, and the token in the way that belongs to it."""
    first = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), handshake, 1, client_id)
    said = plain_token(user, password)
    if handshake == 0:
        return frame(first), frame(said)
    request = SaslAuthenticateRequest(auth_bytes=said)
    return frame(first), frame(encode_request(request, 0, 2, client_id))
