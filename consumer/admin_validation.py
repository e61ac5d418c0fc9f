"""Argument checks for the admin clients' methods, in the style of `consumer.validation`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast
from uuid import UUID

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition
from kproto.security.scram import LEAST_ITERATIONS
from kproto.validation import one_of

from . import validation as check
from .engine.admin.acls import PATTERN_TYPES, PERMISSIONS, AclBinding, AclBindingFilter
from .engine.admin.acls import RESOURCE_TYPES as RESOURCES
from .engine.admin.configs import OPERATIONS, RESOURCE_TYPES, AlterConfigOp, ConfigResource
from .engine.admin.credentials import (
    MAX_ITERATIONS,
    MECHANISMS,
    ScramAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from .engine.admin.features import UPGRADE_TYPES, FeatureUpdate
from .engine.admin.group_descriptions import GROUP_TYPES
from .engine.admin.quorum import RaftVoterEndpoint
from .engine.admin.quotas import ENTITY_TYPES, ClientQuotaEntity
from .engine.admin.replicas import ELECTION_TYPES, TopicPartitionReplica
from .engine.admin.topic_descriptions import OPERATIONS as ACL_OPERATIONS

# Descriptions of the allowed values of arguments, for error messages.
_RESOURCE = 'a ConfigResource, as in ConfigResource("topic", "flights")'
_CHANGES = "{ConfigResource: [AlterConfigOp(name, value), ...]}"
_ACL = 'an AclBinding, as in AclBinding("topic", "flights", "User:alice", "read")'
_ACL_FILTER = 'an AclBindingFilter, as in AclBindingFilter("topic", "flights")'
_REPLICAS = "a list of TopicPartitionReplica(topic, partition, broker)"
_REPLICA_PATHS = "{TopicPartitionReplica(topic, partition, broker): path}"
_QUOTAS = '{ClientQuotaEntity(user="alice"): {"producer_byte_rate": 1048576.0, or None to remove it}}'
_QUOTA_MATCH = f"{{type: name, or None for any name}}; allowed types: {', '.join(map(repr, ENTITY_TYPES))}"
_FEATURES = (
    '{"metadata.version": FeatureUpdate(max_version_level)}; '
    f"allowed upgrade types: {', '.join(map(repr, UPGRADE_TYPES))}"
)
_ENDPOINTS = 'a list, each as in RaftVoterEndpoint("CONTROLLER", "controller-1", 9093); ports up to 65535'
_GROUP_PARTITIONS = "{group: a list of TopicPartition, or None for all}"
_ALTERATIONS = (
    "a list of UserScramCredentialUpsertion(user, mechanism, password) and UserScramCredentialDeletion(user, "
    f"mechanism); mechanisms: {', '.join(MECHANISMS)}; iterations: {LEAST_ITERATIONS} to {MAX_ITERATIONS}"
)


def names(name: str, value: Any) -> list[str]:
    """Check a list of strings."""
    return check.list_of(name, value, check.any_text, "a list of strings")


def number(name: str, value: Any) -> int:
    return check.whole_number(name, value, 0)


def numbers(name: str, value: Any) -> list[int]:
    return check.list_of(name, value, number, "a list of whole numbers that are not negative")


def deletion_offsets(name: str, value: Any) -> dict[TopicPartition, int]:
    """Check the offsets below which records are deleted. "latest" becomes -1 in the result."""

    def end_offset(name: str, offset: Any) -> int:
        return -1 if isinstance(offset, str) and offset == "latest" else check.offset(name, offset)

    return check.dict_of(name, value, check.partition, end_offset, '{TopicPartition: offset, or "latest"}')


def config_resource(name: str, value: Any) -> ConfigResource:
    if not isinstance(value, ConfigResource):
        raise ConfigError(name, value, _RESOURCE)
    one_of(name, value.type, RESOURCE_TYPES)
    check.any_text(name, value.name)
    if value.type in ("broker", "broker_logger") and value.name and not value.name.isdecimal():
        raise ConfigError(
            name, value.name, 'the name of a broker must be its node id, as in "1", or "" for all brokers'
        )
    return value


def config_resources(name: str, value: Any) -> list[ConfigResource]:
    return check.list_of(name, value, config_resource, f"a list, each {_RESOURCE}")


def _config_change(name: str, value: Any) -> AlterConfigOp:
    if not isinstance(value, AlterConfigOp):
        raise ConfigError(name, value, _CHANGES)
    one_of(name, value.operation, OPERATIONS)
    check.any_text(name, value.name)
    if value.operation == "delete":
        if value.value is not None:
            raise ConfigError(name, value, 'the operation "delete" takes no value')
    elif not isinstance(value.value, str):
        raise ConfigError(name, value, f'the operation "{value.operation}" takes a string as its value')
    return value


def config_changes(name: str, value: Any) -> dict[ConfigResource, list[AlterConfigOp]]:
    """Check a mapping from resources to the changes of their configs."""
    return check.dict_of(
        name,
        value,
        config_resource,
        lambda name, changes: check.list_of(name, changes, _config_change, _CHANGES),
        f'{_CHANGES}; allowed operations: {", ".join(OPERATIONS)}; only "delete" takes no value',
    )


def config_types(name: str, value: Any) -> list[str]:
    return check.list_of(
        name, value, lambda name, kind: one_of(name, kind, RESOURCE_TYPES), _list_of_choices(RESOURCE_TYPES)
    )


def _list_of_choices(values: Collection[str]) -> str:
    """Return the error text for a list that may contain only the strings `values`."""
    return f"a list of these strings: {', '.join(map(repr, values))}"


# ---- replicas


def election_type(name: str, value: Any) -> str:
    kind: str = one_of(name, value, ELECTION_TYPES)
    return kind


def replicas(name: str, value: Any) -> dict[TopicPartition, list[int] | None]:
    """Check a mapping from partitions to lists of node ids; None cancels a partition's reassignment."""

    def node_ids(name: str, ids: Any) -> list[int] | None:
        return check.optional(numbers, name, ids)

    return check.dict_of(name, value, check.partition, node_ids, "{TopicPartition: [node id, ...], or None}")


def _replica(name: str, value: Any) -> TopicPartitionReplica:
    if not isinstance(value, TopicPartitionReplica):
        raise ConfigError(name, value, _REPLICA_PATHS)
    check.topic(name, value.topic)
    number(name, value.partition)
    number(name, value.broker)
    return value


def replica_list(name: str, value: Any) -> list[TopicPartitionReplica]:
    return check.list_of(name, value, _replica, _REPLICAS)


def replica_paths(name: str, value: Any) -> dict[TopicPartitionReplica, str]:
    """Check the log directories of replicas."""
    return check.dict_of(name, value, _replica, check.any_text, _REPLICA_PATHS)


# ---- ACLs


def acl(name: str, value: Any) -> AclBinding:
    """Check an ACL. The values "any" and "match" are rejected, because they are valid only in filters."""
    if not isinstance(value, AclBinding):
        raise ConfigError(name, value, _ACL)
    _check_acl_fields(name, value, ("any", "match"))
    for text in (value.resource_name, value.principal, value.host):
        check.any_text(name, text)
    return value


def _check_acl_fields(name: str, value: AclBinding | AclBindingFilter, excluded: Collection[str]) -> None:
    """Check the fields that allow only certain strings. The strings in `excluded` are not allowed."""
    for field, code, codes in (
        ("resource_type", value.resource_type, RESOURCES),
        ("pattern_type", value.pattern_type, PATTERN_TYPES),
        ("operation", value.operation, ACL_OPERATIONS),
        ("permission", value.permission, PERMISSIONS),
    ):
        one_of(f"{name}: {field}", code, [choice for choice in codes if choice not in excluded])


def acls(name: str, value: Any) -> list[AclBinding]:
    return check.list_of(name, value, acl, f"a list, each {_ACL}")


def acl_filter(name: str, value: Any) -> AclBindingFilter:
    """Check a filter for ACLs."""
    if not isinstance(value, AclBindingFilter):
        raise ConfigError(name, value, _ACL_FILTER)
    _check_acl_fields(name, value, ())
    for text in (value.resource_name, value.principal, value.host):
        check.optional(check.any_text, name, text)
    return value


def acl_filters(name: str, value: Any) -> list[AclBindingFilter]:
    return check.list_of(name, value, acl_filter, f"a list, each {_ACL_FILTER}")


# ---- credentials


def _scram_alteration(name: str, value: Any) -> ScramAlteration:
    if not isinstance(value, UserScramCredentialUpsertion | UserScramCredentialDeletion):
        raise ConfigError(name, value, _ALTERATIONS)
    check.any_text(name, value.user)
    one_of(name, value.mechanism, MECHANISMS)
    if isinstance(value, UserScramCredentialUpsertion):
        if not isinstance(cast("object", value.password), str) or not value.password:
            raise ConfigError(name, value, "the password must be a string that is not empty")
        if value.salt is not None and not isinstance(cast("object", value.salt), bytes):
            raise ConfigError(name, value, "the salt must be bytes, or None for a random salt")
        check.whole_number(name, value.iterations, LEAST_ITERATIONS)
        if value.iterations > MAX_ITERATIONS:
            raise ConfigError(name, value, _ALTERATIONS)
    return value


def scram_alterations(name: str, value: Any) -> list[ScramAlteration]:
    """Check a list of new, changed and deleted SCRAM credentials."""
    return check.list_of(name, value, _scram_alteration, _ALTERATIONS)


# ---- quotas


def _quota_entity(name: str, value: Any) -> ClientQuotaEntity:
    if not isinstance(value, ClientQuotaEntity) or not value.names():
        raise ConfigError(name, value, _QUOTAS)
    for entity_name in value.names().values():
        check.any_text(name, entity_name)
    return value


def _quota_values(name: str, value: Any) -> dict[str, float | None]:
    return check.dict_of(name, value, check.any_text, _quota_value, _QUOTAS)


def _quota_value(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(name, value, "a quota must be a number, or None to remove the quota")
    return float(value)


def quota_changes(name: str, value: Any) -> dict[ClientQuotaEntity, dict[str, float | None]]:
    """Check a mapping from entities to the changes of their quotas."""
    return check.dict_of(name, value, _quota_entity, _quota_values, _QUOTAS)


def quota_match(name: str, value: Any) -> dict[str, str | None]:
    """Check the types and names of the entities whose quotas are described."""

    def entity_type(name: str, key: Any) -> str:
        type_: str = one_of(name, key, ENTITY_TYPES)
        return type_

    def entity_name(name: str, entity: Any) -> str | None:
        return check.optional(check.any_text, name, entity)

    return check.dict_of(name, value, entity_type, entity_name, _QUOTA_MATCH)


# ---- features and the quorum


def _feature_update(name: str, value: Any) -> FeatureUpdate:
    if not isinstance(value, FeatureUpdate):
        raise ConfigError(name, value, _FEATURES)
    number(name, value.max_version_level)
    one_of(name, value.upgrade_type, UPGRADE_TYPES)
    return value


def feature_updates(name: str, value: Any) -> dict[str, FeatureUpdate]:
    """Check the new levels of features."""
    return check.dict_of(name, value, check.any_text, _feature_update, _FEATURES)


def directory_id(name: str, value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise ConfigError(name, value, "the id of the controller's metadata directory, as a uuid.UUID")
    return value


def _endpoint(name: str, value: Any) -> RaftVoterEndpoint:
    if not isinstance(value, RaftVoterEndpoint):
        raise ConfigError(name, value, _ENDPOINTS)
    check.any_text(name, value.listener)
    check.any_text(name, value.host)
    if check.whole_number(name, value.port, 0) > 0xFFFF:
        raise ConfigError(name, value, _ENDPOINTS)
    return value


def endpoints(name: str, value: Any) -> list[RaftVoterEndpoint]:
    return check.list_of(name, value, _endpoint, _ENDPOINTS)


# ---- delegation tokens


def principal(name: str, value: Any) -> str:
    """Check the type and the name of a principal."""
    text = check.any_text(name, value)
    kind, colon, _ = text.partition(":")
    if not kind or not colon:
        raise ConfigError(name, value, 'a principal must be a type and a name, as in "User:alice"')
    return text


def principals(name: str, value: Any) -> list[str]:
    return check.list_of(name, value, principal, 'a list of principals, as in ["User:alice"]')


def hmac(name: str, value: Any) -> bytes:
    """Check the HMAC of a delegation token. The error omits the HMAC, which serves as a password."""
    if not isinstance(value, bytes):
        raise ConfigError(name, type(value).__name__, "bytes: the `hmac` of a DelegationToken")
    return value


# ---- groups


def group_partitions(name: str, value: Any) -> dict[str, list[TopicPartition] | None]:
    """Check a mapping from groups to lists of partitions; None stands for all partitions of a group."""

    def optional_partitions(name: str, partitions: Any) -> list[TopicPartition] | None:
        return check.optional(check.partitions, name, partitions)

    return check.dict_of(name, value, check.group, optional_partitions, _GROUP_PARTITIONS)


def group_types(name: str, value: Any) -> list[str]:
    return check.list_of(
        name, value, lambda name, kind: one_of(name, kind, GROUP_TYPES), _list_of_choices(GROUP_TYPES)
    )
