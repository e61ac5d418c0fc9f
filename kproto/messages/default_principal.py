"""DefaultPrincipalData: the client's principal as a broker writes it into an Envelope (KIP-590)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Bool, String


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: String
    name: String
    token_authenticated: Bool
