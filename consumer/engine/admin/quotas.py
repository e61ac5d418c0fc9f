"""Admin operations that describe and change the quotas of users, clients and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproto.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    OpData,
)
from kproto.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)

from ..error_actions import ADMIN
from ..metadata.cluster import ClusterView
from ..network.call import Call
from .fanout import Answer, ask_broker, fan_out, to_any_broker
from .plan import Plan, expect_response

# Kafka's types of entities (ClientQuotaEntity).
ENTITY_TYPES: Final = ("user", "client-id", "ip")
# The match types of DescribeClientQuotas.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class ClientQuotaEntity(msgspec.Struct, frozen=True):
    """A user, a client id, a user with a client id, or an IP address. Java: ClientQuotaEntity.

    A field that is not part of the entity is None.

    The name "" stands for the default, which applies to all users, client ids or addresses without their own
    quota.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def names(self) -> dict[str, str]:
        """The names in the entity, by type: "user", "client-id" or "ip"."""
        names = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {entity_type: name for entity_type, name in names.items() if name is not None}

    def __str__(self) -> str:
        return " with ".join(
            f"{entity_type} {name!r}" if name else f"the default {entity_type}"
            for entity_type, name in self.names().items()
        )


def describe_client_quotas(
    view: ClusterView, match: Mapping[str, str | None], clock: Callable[[], int], *, strict: bool
) -> Plan[dict[ClientQuotaEntity, dict[str, float]]]:
    """Return the quotas of the entities whose types and names match `match`.

    The name None matches any name, and "" matches the default entity.
    """

    def read(call: Call) -> tuple[int, str | None, dict[ClientQuotaEntity, dict[str, float]]]:
        response = expect_response(DescribeClientQuotasResponse, call)
        quotas = {
            _quota_entity(entry.entity): {quota.key: quota.value for quota in entry.values}
            for entry in response.entries or ()
        }
        ordered = sorted(quotas, key=lambda entity: sorted(entity.names().items()))
        return response.error_code, response.error_message, {entity: quotas[entity] for entity in ordered}

    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(
                entity_type=entity_type,
                match_type=_match_type(name),
                match=name or None,
            )
            for entity_type, name in match.items()
        ],
        strict=strict,
    )
    return (yield from ask_broker(to_any_broker(view, clock), "DescribeClientQuotas", ADMIN, request, read))


def _match_type(name: str | None) -> int:
    if name is None:
        return _ANY
    return _EXACT if name else _DEFAULT


def alter_client_quotas(
    view: ClusterView,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    clock: Callable[[], int],
    *,
    validate_only: bool,
) -> Plan[dict[ClientQuotaEntity, None]]:
    """Set the quotas of each entity; None removes a quota.

    The changes of one entity succeed or fail together.
    """

    def request(items: Sequence[ClientQuotaEntity]) -> AlterClientQuotasRequest:
        return AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    entity=[
                        AlterClientQuotasRequestEntityData(entity_type=entity_type, entity_name=name or None)
                        for entity_type, name in item.names().items()
                    ],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in changes[item].items()
                    ],
                )
                for item in items
            ],
            validate_only=validate_only,
        )

    def read(call: Call, items: Sequence[ClientQuotaEntity]) -> Iterator[Answer[ClientQuotaEntity, None]]:
        for entry in expect_response(AlterClientQuotasResponse, call).entries:
            yield Answer(_quota_entity(entry.entity), None, entry.error_code, entry.error_message)

    router = to_any_broker(view, clock)
    return (yield from fan_out(changes, router, "AlterClientQuotas", ADMIN, request, read))


def _quota_entity(
    components: Sequence[EntityData | AlterClientQuotasResponseEntityData],
) -> ClientQuotaEntity:
    """Convert an entity of a response to a ClientQuotaEntity.

    A null name in the response stands for the default entity, whose name in the result is "".
    """
    names = {component.entity_type: component.entity_name or "" for component in components}
    return ClientQuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
