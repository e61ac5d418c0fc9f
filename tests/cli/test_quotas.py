"""`kproto quotas` lists quotas, and changes them only with --execute."""

from __future__ import annotations

from math import inf, nan

from consumer import Admin, ClientQuotaEntity
from kproto.broker.server import Server
from tests.cli.stage import Shell


def test_quotas_are_set_and_deleted(shell: Shell) -> None:
    words = "quotas alter --user alice --set producer_byte_rate=10000000 --set request_percentage=0.5"
    assert shell(words) == [
        "producer_byte_rate of user-principal 'alice', now not set: set to 1.0E7",
        "request_percentage of user-principal 'alice', now not set: set to 0.5",
    ]
    assert shell.errors == "no quota was changed; add --execute to do it\n"
    assert shell("quotas describe --user alice") == []
    assert shell(f"{words} --execute") == ["Completed updating config for user alice."]
    assert shell("quotas describe --user alice") == [
        "Quota configs for user-principal 'alice' are producer_byte_rate=1.0E7, request_percentage=0.5"
    ]
    words = "quotas alter --user alice --set request_percentage=25 --delete producer_byte_rate"
    assert shell(words) == [
        "request_percentage of user-principal 'alice', now 0.5: set to 25.0",
        "producer_byte_rate of user-principal 'alice', now 1.0E7: delete",
    ]
    assert shell.json(f"{words} --execute") == [{"entity": {"user": "alice"}, "done": "altered"}]
    assert shell.json("quotas describe --user alice") == [
        {"entity": {"user": "alice"}, "quotas": {"request_percentage": 25.0}}
    ]


def test_entities_have_one_or_two_types_and_defaults(shell: Shell) -> None:
    for entity, done in {
        "--user bob --client app": "Completed updating config for user bob.",
        "--user bob": "Completed updating config for user bob.",
        "--client-defaults": "Completed updating default config for clients in the cluster.",
    }.items():
        assert shell(f"quotas alter {entity} --set consumer_byte_rate=1000 --execute") == [done]
    assert shell("quotas alter --ip ::1 --set connection_creation_rate=5 --execute") == [
        "Completed updating config for ip ::1."
    ]
    user_and_client = "Quota configs for user-principal 'bob', client-id 'app' are consumer_byte_rate=1000.0"
    default = "Quota configs for the default client-id are consumer_byte_rate=1000.0"
    address = "Quota configs for ip '::1' are connection_creation_rate=5.0"
    assert shell("quotas list users clients") == [user_and_client]
    assert shell("quotas list clients") == shell("quotas describe --client-defaults") == [default]
    assert shell("quotas list ips") == [address]
    assert {user_and_client, default, address} <= set(shell("quotas list"))
    assert shell("quotas describe --client app") == []


def test_invalid_arguments_are_named(shell: Shell) -> None:
    for words, allowed in {
        "quotas describe": "add --user, --client or both, or add --ip",
        "quotas list topics": "allowed: users, clients, ips",
        "quotas alter --user a": "allowed: at least one of --set and --delete",
        "quotas alter --user a --set producer_byte_rate=fast": "allowed: a number for producer_byte_rate",
        "quotas alter --user a --set request_percentage=NaN": "allowed: a number for producer_byte_rate",
        "quotas alter --user a --set request_percentage=Infinity": "allowed: a number for producer_byte_rate",
        "quotas alter --user a --set no_such=1": "allowed: a number for producer_byte_rate",
        "quotas alter --user a --ip ::1 --set no=1": "allowed only without --user and --client",
        "quotas alter --user a --user-defaults": "not allowed with argument --user",
        "quotas alter --user a --set request_percentage=1 --delete request_percentage": "but not in both",
    }.items():
        shell(words, code=2)
        assert allowed in shell.errors


def test_a_change_that_the_broker_rejects_fails_also_without_execute(shell: Shell) -> None:
    for more in ("", " --execute"):
        shell(f"quotas alter --user carol --set producer_byte_rate=0.5{more}", code=1)
        assert "cannot be a fractional value" in shell.errors


def test_a_quota_that_is_not_set_is_not_deleted(shell: Shell) -> None:
    shell("quotas alter --user dora --set producer_byte_rate=5 --execute")
    for more in ("", " --execute"):
        assert shell(f"quotas alter --user dora --delete producer_byte_rat{more}", code=1) == []
        assert "user-principal 'dora' has no quota 'producer_byte_rat'" in shell.errors
    assert shell("quotas alter --user dora --delete producer_byte_rate --execute")
    assert shell("quotas describe --user dora") == []


def test_a_quota_that_is_no_finite_number_is_a_text_in_json(shell: Shell, broker: Server) -> None:
    quotas = {"request_percentage": nan, "controller_mutation_rate": inf}
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({ClientQuotaEntity(user="erin"): quotas})
    [described] = shell.json("quotas describe --user erin")
    assert described["quotas"] == {"request_percentage": "NaN", "controller_mutation_rate": "Infinity"}
