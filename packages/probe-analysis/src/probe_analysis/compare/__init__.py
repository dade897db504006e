"""Compare two tensors, or two calls' other arguments: by statistics, checksums and values."""
