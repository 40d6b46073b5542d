"""Model architectures, each a ForwardModel over the paged cache."""
