"""SASL mechanisms without I/O. Each has a client's half and a broker's half.

    exchange = ScramClient("SCRAM-SHA-512", "alice", password, nonce)
    exchange.begin() -> bytes to send;  exchange.answer(challenge) -> bytes to send, or None at the end

    exchange = ScramServer("SCRAM-SHA-512", look_up, nonce)
    exchange.evaluate_response(response) -> Challenge, Accepted or Rejected

Rules of this package:

* The package reads no random source: nonces and salts are arguments.
* Secrets are compared in constant time. No repr and no error contains a secret: errors name the violated
  rule, not the received value.
* Malformed bytes of the peer lead to `SaslFailed` in a client's half and to `Rejected` in a broker's half,
  and to no other error.
"""
