"""Security of the embedded broker: listeners, TLS, SASL, users and ACLs.

SASL is part of the state machine. The socket layer handles TLS, and puts the principal of a client
certificate into `ClientConnected`.
"""
