"""Security of the embedded broker: listeners, TLS, SASL, users and ACLs.

Authentication is part of a connection's state in the machine. TLS belongs to the socket; `ClientConnected`
reports the principal of a client certificate.
"""
