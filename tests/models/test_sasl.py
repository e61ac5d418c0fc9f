"""SASL PLAIN sends its token in SaslAuthenticate, or as a bare frame after SaslHandshake version 0."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.messages.headers import decode_request
from kproto.models import sasl


def test_plain_after_handshake_v0_is_a_bare_frame() -> None:
    first, second = sasl.plain_frames(0, "alice", "secret", "c")
    assert decode_request(first[4:]).version == 0
    assert second == b"\0\0\0\x0d\0alice\0secret"


def test_plain_after_handshake_v1_is_a_sasl_authenticate_request() -> None:
    first, second = sasl.plain_frames(1, "alice", "secret", "c")
    assert [decode_request(frame[4:]).version for frame in (first, second)] == [1, 0]
    assert decode_request(second[4:]).request.auth_bytes == b"\0alice\0secret"  # type: ignore[attr-defined]


def test_a_user_with_a_nul_character_is_rejected() -> None:
    with pytest.raises(ConfigError, match="user"):
        sasl.plain_token("a\0b", "c")
