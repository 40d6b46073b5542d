"""The embedded engine: paged KV, continuous batching, chunked prefill.

It imports nothing of agentrt but its errors, so it can be read, tested and used alone.
"""
