"""Names of spans and attributes, in one place, from three sources that never share a prefix.

``gen_ai.*`` and ``error.*`` follow the OpenTelemetry conventions for generative AI at the version below; that
specification is not stable yet, so a new version is taken over on purpose and noted in the changelog, never
by an upgrade of a package. ``llm.*`` and ``action.*`` are the per-token and per-action names that dashboards
for agents use. Everything of our own is ``agentrt.*``.
"""

from __future__ import annotations

SEMCONV_GENAI_VERSION = "0.1.0"
"""Version of the OpenTelemetry GenAI conventions (repository semantic-conventions-genai) these names were
taken from."""

SEMCONV = "agentrt.semconv_genai_version"
"""Attribute of the instrumentation scope."""

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
"""Up to version 1.41 of the general conventions a workflow had this name; 0.1.0 calls it
``gen_ai.agent.name``. A run's span carries both, because most backends still read the older one."""
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_STREAM = "gen_ai.request.stream"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
CHAT = "chat"

TOKEN_SPAN = "llm.token.generate"
TOKEN_ID = "llm.token_id"
TOKEN_STEP = "llm.step"
TOKEN_LOGPROB = "llm.logprob"
ACTION_TYPE = "action.type"
ACTION_DURATION_MS = "action.duration_ms"

RUN_ID = "agentrt.run_id"
DAG = "agentrt.dag"
STATUS = "agentrt.status"
REASON = "agentrt.reason"
DEADLINE_S = "agentrt.deadline_s"
SLO_P99_S = "agentrt.slo_p99_s"
ACTION_NAME = "agentrt.action.name"
NUM_ATTEMPTS = "agentrt.action.num_attempts"
QUEUE_S = "agentrt.queue_s"
PREFILL_S = "agentrt.prefill_s"
ITL_MEAN_S = "agentrt.itl_mean_s"
ITL_P99_S = "agentrt.itl_p99_s"
ATTEMPT_FAILED_EVENT = "agentrt.attempt_failed"
ATTEMPT = "agentrt.attempt"
RETRY_WAIT_S = "agentrt.retry_wait_s"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_TYPE = "exception.type"
