"""Kafka's messages: one file per API with its request and response, for all versions.

    from kproto.messages.join_group import JoinGroupRequest
    body = JoinGroupRequest(group_id="g", session_timeout_ms=45_000, ...).encode(9)
    request = JoinGroupRequest.decode(body, 9)

The declarations follow Kafka's definitions in the release `index.KAFKA_RELEASE`. A test compares them with
those definitions. The package also declares the records of Kafka's own topics, and some files in a broker's
log directories.

Rules for names and version ranges:

* A file is named after its API, in snake_case. The class of a message has Kafka's name.

* A field has Kafka's name in snake_case, with an underscore before every capital letter except the first.
  ``KRaftVersion`` is ``k_raft_version``, and ``V3AndBelowTopics`` is ``v3_and_below_topics``.

* A struct has Kafka's name. Kafka nests structs in their message, but here they are classes of the module.

* If two messages of a file have structs of the same name, each struct's name begins with the name of its
  message: ``VoteRequestTopicData`` and ``VoteResponseTopicData``.

* Version ranges are limited to the versions of the message. Fields that exist in none of these versions are
  not declared. A field without a range exists in every version of its struct.

* `ignorable` is declared only if some version of the message lacks the field.

* Error codes are plain ints, because a broker may send codes that `kproto.error_codes.ErrorCode` does not
  define.

Importing this package imports no message. `index` finds messages by key or name and imports them on first
use.
"""
