"""Security of the embedded broker: listeners, TLS, SASL, users and ACLs.

The machine authenticates SASL clients as part of a connection's state. The socket layer handles TLS;
`ClientConnected` contains the principal of a client certificate.
"""
