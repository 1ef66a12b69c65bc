"""The Celery app of a project with OpenTelemetry, instrumented as its guide says."""

from __future__ import annotations

from celery.signals import worker_process_init
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from testproject.celery import app  # noqa: F401

SPANS = InMemorySpanExporter()


def instrument(**_: object) -> None:
    """Instrument this process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()


worker_process_init.connect(instrument, weak=False)
