"""SASL mechanisms without I/O, the client's and the broker's half of each.

    exchange = ScramClient("SCRAM-SHA-512", "alice", password, nonce)
    exchange.begin() -> bytes to send;  exchange.answer(challenge) -> bytes to send, or None at the end

    exchange = ScramServer("SCRAM-SHA-512", look_up, nonce)
    exchange.evaluate_response(response) -> Challenge, Accepted or Rejected

Rules of this package:

* Nothing here reads a random source: nonces and salts are arguments.
* Secrets are compared in constant time. No repr and no error contains them: errors say what is wrong, not
  what was sent.
* Any bytes of the peer lead to `SaslFailed` in a client's half and to `Rejected` in a broker's half, never to
  another error.
"""
