"""Servers of language models measured on the same work; see README.md."""
