"""SASL as machines without I/O, both halves of each mechanism: what clients send and what brokers answer.

    exchange = ScramClient("SCRAM-SHA-512", "alice", password, nonce)
    exchange.begin() -> bytes to send;  exchange.answer(challenge) -> bytes to send, or None when it is over

    exchange = ScramServer("SCRAM-SHA-512", look_up, nonce)
    exchange.take(response) -> Challenge, Accepted or Refused

Rules that hold in this room:

* Nothing here reads a random source: nonces and salts come as arguments.
* Secrets are compared in constant time, and are in no repr and no error: errors say what is wrong, never what
  was sent.
* Bytes of the other side raise `SaslFailed` in a client's half and become `Refused` in a server's: nothing
  else, whatever they are.
"""
