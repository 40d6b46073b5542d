"""The step of a model on a processor: C++ behind a plain C ABI, and what prepares and calls it."""
