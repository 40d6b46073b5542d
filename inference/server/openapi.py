"""The OpenAPI document: made from the models that check the bodies, so that it cannot say something else."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from agentrt.inference.server.fields import ChatCompletionRequest, CompletionRequest

_TITLE = "agentrt inference server"


def describe_api() -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    _, schemas = models_json_schema(
        [(CompletionRequest, "validation"), (ChatCompletionRequest, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    components = dict(schemas.get("$defs", {}))
    components["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": "1"},
        "paths": {
            "/health": {"get": _operation("Whether requests are taken.", also=("503",))},
            "/metrics": {"get": _operation("Metrics for Prometheus.", media_type="text/plain")},
            "/v1/models": {"get": _operation("The models served.")},
            "/v1/completions": {"post": _operation("Continue a text.", body="CompletionRequest")},
            "/v1/chat/completions": {"post": _operation("Answer a chat.", body="ChatCompletionRequest")},
        },
        "components": {"schemas": components},
    }


def _operation(
    summary: str, *, body: str | None = None, media_type: str = "application/json", also: tuple[str, ...] = ()
) -> dict[str, Any]:
    error_schema = {"$ref": "#/components/schemas/Error"}
    error = {"description": "Not served.", "content": {"application/json": {"schema": error_schema}}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "Served.", "content": {media_type: {}}}},
    }
    for status in also:
        operation["responses"][status] = {"description": "Not now.", "content": {"application/json": {}}}
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        }
        operation["responses"]["200"]["content"]["text/event-stream"] = {}
        for status in ("400", "401", "404", "408", "413", "429", "500", "504"):
            operation["responses"][status] = error
    return operation
