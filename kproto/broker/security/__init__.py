"""Who may come in (listeners, SASL, users) and what they may do then (ACLs), for the embedded broker.

Authentication is a state of a connection in the machine, as every other state; TLS is the server's, which
says in `Connected` whom a certificate names.
"""
