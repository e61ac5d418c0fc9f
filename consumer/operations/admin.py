"""The operations of an admin client, and the driver that connects its engine to its runtime.

`consumer.aio.admin` has the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kproto.validation import flag

from .. import validation as check
from ..addresses import addresses
from ..clock import now, wall
from ..dialers import Dialer, check_dialer
from ..engine import events as ev
from ..engine.admin.engine import AdminEngine, step
from ..engine.metadata.cluster import ClusterView
from ..engine.metrics import Metrics
from ..engine.telemetry.application import ApplicationMetric
from ..engine.telemetry.reporter import register_metric, unregister_metric
from ..logs import log
from ..option_checks import dialer as check_dialer_option
from ..records import GroupChange
from ..runtime import Driver, Runtime
from ..security.option_names import NAMES, SecurityConfig

if TYPE_CHECKING:
    from ..security.options import Security

R = TypeVar("R")

# Longest time (ms) that `close` waits for the end of the client's thread.
_END_MS: Final = 1000


class AdminDriver:
    """Connects the engine of an admin client to its runtime."""

    kind = "admin client"

    def __init__(self, engine: AdminEngine, client_id: str) -> None:
        self.client_id = client_id
        self.step = partial(step, engine)
        self.due = engine.due

    def on_applied(self) -> None:
        pass

    def on_fork(self) -> None:
        pass

    def on_reports_end(self) -> None:
        pass

    def on_report(self, change: GroupChange) -> None:
        log.warning("%s %s %s", self.client_id, change.kind, change.reason)

    def loss(self) -> str:
        return ""


class AdminRunner:
    """Runs plans for `Admin` and `AsyncAdmin`. `make_runtime` returns the runtime to use."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        client_id: str,
        request_timeout_ms: int,
        receive_message_max_bytes: int,
        timeout: float,
        enable_metrics_push: bool,
        dialer: Dialer | None,
        security: SecurityConfig,
        make_runtime: Callable[[Driver], Runtime],
    ) -> None:
        client_id = check.any_text("client_id", client_id)
        security_settings = _security_settings(security)
        check_dialer_option("dialer", dialer)
        self.engine = AdminEngine(
            addresses(bootstrap_servers, security_settings),
            Random(),
            client_id=client_id,
            request_timeout_ms=check.whole_number("request_timeout_ms", request_timeout_ms, 1),
            receive_message_max_bytes=check.whole_number(
                "receive_message_max_bytes", receive_message_max_bytes, 1000
            ),
            security=security_settings,
            dialer=dialer,
            wall=wall,
            enable_metrics_push=flag("enable_metrics_push", enable_metrics_push),
        )
        self._timeout = check.seconds("timeout", timeout)
        self._client_id = client_id
        self.runtime = make_runtime(AdminDriver(self.engine, client_id))
        check_dialer(dialer, awaits=self.runtime.awaits_callbacks)

    def describe(self, kind: str) -> str:
        """Return the client's repr.

        No lock is taken, because a debugger may call this method at any moment.
        """
        return f"<{kind} {self._client_id!r}{': closed' if self.runtime.closed else ''}>"

    @property
    def view(self) -> ClusterView:
        return self.engine.view

    def metrics(self) -> Metrics:
        with self.runtime.locked():
            return self.engine.metrics(now())

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        register_metric(self.engine.telemetry, metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        unregister_metric(self.engine.telemetry, metric)

    def clock(self) -> int:
        """Return the time (ms) of the engine's last step, which plans use as their clock."""
        return self.engine.now

    async def run(self, method: str, plan: Generator[Any, Any, R], limit: int) -> R:
        """Run a plan for at most `limit` milliseconds, on behalf of the client's method `method`."""
        with self.runtime.call(method):
            result: R = await self.runtime.run(lambda future: ev.Run(future, plan, limit))
            return result

    def timeout_ms(self, timeout: float | None) -> int:
        """Return the timeout of a call in milliseconds. Without `timeout`, the client's default applies."""
        checked = self._timeout if timeout is None else check.seconds("timeout", timeout)
        return int(checked * 1000)

    async def close(self) -> None:
        runtime = self.runtime
        with runtime.call("close"):
            if runtime.closed or runtime.forked:
                return
            try:
                if runtime.failure is None:
                    await runtime.run(lambda future: ev.Close(future, leave=False, timeout_ms=0))
            finally:
                runtime.end(now() + _END_MS)


# The admin client's own options. The options for TLS and SASL are in `NAMES`.
_OWN_OPTIONS: Final = (
    "client_id",
    "dialer",
    "enable_metrics_push",
    "receive_message_max_bytes",
    "request_timeout_ms",
    "timeout",
)


def _security_settings(config: SecurityConfig) -> Security | None:
    """Return the security settings of these options.

    If `config` is empty, the modules of TLS and SASL are not imported.
    """
    if not config:
        return None
    from ..security.options import security_options

    for name, value in config.items():
        if name not in NAMES:
            from ..options import unknown_option

            raise unknown_option(name, value, "an admin client", [*_OWN_OPTIONS, *NAMES])
    return security_options(config)
