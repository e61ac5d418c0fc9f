"""Kafka's messages: one file per API with its request and response, declared once for all versions.

    from kproto.messages.join_group import JoinGroupRequest
    body = JoinGroupRequest(group_id="g", session_timeout_ms=45_000, ...).encode(9)
    again = JoinGroupRequest.decode(body, 9)

The declarations follow Kafka 4.3's own definitions, and a test holds every one of them against those. What
the names are, so that nobody has to guess:

* A file is named as its API, in snake_case; a class is named as in Kafka.
* A field is named as in Kafka, in snake_case: an underscore before every capital but the first, and
  nothing else. ``KRaftVersion`` is ``k_raft_version``, ``V3AndBelowTopics`` is ``v3_and_below_topics``.
* A struct keeps Kafka's name. Kafka nests structs in their message; here they are neighbours, so where two
  messages of one file have a struct of the same name, the message's name is put in front:
  ``VoteRequestTopicData`` and ``VoteResponseTopicData``.
* Ranges are cut to the versions that the message has; a field that none of them has is not declared.
  A field without a range is there whenever its struct is. The ignorable flag is only said where a
  version without the field exists.
* Error codes are plain ints, because a broker may know more of them than `kproto.error_codes.ErrorCode`.

Importing this package imports no message: `index` finds them by key or name and imports them on first use.
"""
