"""What Prometheus may ask: how requests went, how long tokens took, how the engines are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentrt.inference.server.models import ServedModel

_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 30.0)

_GAUGES = {
    "num_waiting": ("agentrt_requests_waiting", "Requests that hold no blocks."),
    "num_running": ("agentrt_requests_running", "Requests that hold blocks."),
    "num_used_blocks": ("agentrt_kv_blocks_used", "Blocks of the cache in use."),
    "num_blocks": ("agentrt_kv_blocks", "Blocks of the cache."),
    "payload_share": ("agentrt_kv_payload_share", "Of the slots in used blocks, the share that holds a token."),
    "num_steps": ("agentrt_engine_steps", "Steps since the start."),
    "num_preemptions": ("agentrt_preemptions", "Preemptions since the start."),
    "num_computed_tokens": ("agentrt_computed_tokens", "Rows computed since the start."),
    "num_cached_tokens": ("agentrt_cached_tokens", "Prompt tokens found in the cache since the start."),
    "num_output_tokens": ("agentrt_output_tokens", "Tokens generated since the start."),
}


class Metrics:
    """The metrics of one server. TTFT and ITL are apart: a prompt's length drives one, the batch the other."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engines(models))
        self.requests = self._counter()
        self.ttft = self._histogram("agentrt_ttft_seconds", "Request accepted to first token.")
        self.itl = self._histogram("agentrt_itl_seconds", "Between tokens of one stream.")

    def _counter(self) -> Counter:
        labels = ("model", "endpoint", "status")
        return Counter("agentrt_requests", "Requests by model, endpoint and status.", labels, registry=self._registry)

    def _histogram(self, name: str, description: str) -> Histogram:
        return Histogram(name, description, ("model",), buckets=_SECONDS, registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _Engines(Collector):
    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        for field, (name, description) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, description, labels=("model",))
            for model in self._models.values():
                gauge.add_metric((model.name,), getattr(model.engine.stats(), field))
            yield gauge
