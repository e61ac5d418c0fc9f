"""Other clients' group members and consumers, each as it is, as machines without I/O.

Each module names its original (file, function, version) and has the same five things: `VERSIONS`, `State`,
`start`, `step` and `next_deadline`; `contract` says what they mean. Nothing here is for reading records in
production (that is the package `consumer`): these machines lose and double what their originals do.
"""
