"""An HTTP server in front of engines, in the dialect of OpenAI's API."""
