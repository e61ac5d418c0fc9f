"""SASL mechanisms without I/O. Each has a class for the client and a class for the broker.

    exchange = ScramClient("SCRAM-SHA-512", "alice", password, nonce)
    exchange.begin() -> bytes to send;  exchange.answer(challenge) -> bytes to send, or None at the end

    exchange = ScramServer("SCRAM-SHA-512", look_up, nonce)
    exchange.evaluate_response(response) -> Challenge, Accepted or Rejected

Rules of this package:

* The package reads no random source: nonces and salts are arguments.
* Secrets are compared in constant time.

* No repr and no error contains a secret. An error names the violated rule instead of the received value.

* If the peer sends malformed bytes, a client class raises `SaslFailed`, and a broker class returns
  `Rejected`. Neither raises any other error.
"""
