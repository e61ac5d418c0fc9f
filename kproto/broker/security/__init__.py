"""Security of the embedded broker: listeners, TLS, SASL, users and ACLs.

The state machine authenticates SASL clients: the login is part of a connection's state. The socket layer
handles TLS, and puts the principal of a client certificate into `ClientConnected`.
"""
