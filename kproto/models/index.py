"""The models by name. Each one is imported on first use.

    load_model("sarama").start(config)

`MODELS` is the only registry of models, and `kproto.models` takes its attributes from it. Drivers, simulated
clusters and scenarios refer to a model by its name in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol, cast

from ..errors import ConfigError
from .contract import ModelAction, ModelConfig, ModelEvent

# Name -> module below `kproto.models`. kproto's own consumer is not a model: it is the package `consumer`.
MODELS: Final[Mapping[str, str]] = {
    "java": "java",
    "java-2.6": "java.java_2_6",
    "sarama": "sarama",
    "sarama-cluster": "sarama_cluster",
    "kafka-go": "kafka_go",
    "librdkafka": "librdkafka",
}


class Model(Protocol):
    """The interface of a model's module. `contract` describes the events and actions."""

    @property
    def VERSIONS(self) -> Mapping[int, int]: ...  # a constant

    def start(self, config: ModelConfig) -> Any: ...
    def step(self, state: Any, event: ModelEvent, now: int) -> list[ModelAction]: ...
    def next_deadline(self, state: Any) -> int | None: ...


def model_names() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(MODELS)


def load_model(name: str) -> Model:
    """Return the module of the model `name`. Raises ConfigError for an unknown name."""
    if name not in MODELS:
        raise ConfigError("client", name, f"allowed: {', '.join(MODELS)}")
    return cast("Model", import_module(f"{__package__}.{MODELS[name]}"))


def model_name(module: str) -> str:
    """Return the name of the model whose module is called `module`.

    For any other module, return the last part of the module's name.
    """
    names_by_module = {f"{__package__}.{path}": name for name, path in MODELS.items()}
    return names_by_module.get(module, module.rpartition(".")[2])
