"""Kafka's messages: one file per API with its request and response, for all versions.

    from kproto.messages.join_group import JoinGroupRequest
    body = JoinGroupRequest(group_id="g", session_timeout_ms=45_000, ...).encode(9)
    request = JoinGroupRequest.decode(body, 9)

The declarations follow Kafka's definitions in the release `index.KAFKA_RELEASE`. A test compares each
declaration with Kafka's definition. The package also declares the records of Kafka's own topics, and some
files of a broker's log directories. Names and ranges follow these rules:

* A file is named after its API, in snake_case. The class of a message has Kafka's name for it.
* A field has Kafka's name in snake_case, with an underscore before every capital letter but the first:
  ``KRaftVersion`` is ``k_raft_version``, ``V3AndBelowTopics`` is ``v3_and_below_topics``.
* A struct has Kafka's name. Kafka nests structs in their message; here they are classes of the module. If two
  messages of one file have structs of the same name, each of these classes begins with the name of its
  message: ``VoteRequestTopicData`` and ``VoteResponseTopicData``.
* Version ranges are limited to the versions of the message. Fields that exist in none of these versions are
  not declared. A field without a range exists in every version that has its struct. `ignorable` is declared
  only if some version of the message lacks the field.
* Error codes are plain ints, because a broker may know codes that `kproto.error_codes.ErrorCode` lacks.

Importing this package imports no message. `index` finds messages by key or name and imports them on first
use.
"""
