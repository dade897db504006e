"""List which arguments of torch's collectives only receive."""

PREFIX = "Distributed."

# Arguments that only receive, so that their content before the call means nothing: (position, name).
_RECEIVES = {
    "all_gather": (0, "tensor_list"),
    "_all_gather_base": (0, "output_tensor"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "gather": (1, "gather_list"),
    "gather_single": (1, "gather_tensor"),
    "gather_into_tensor": (1, "gather_tensor"),
    "scatter": (0, "tensor"),
    "reduce_scatter": (0, "output"),
    "_reduce_scatter_base": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "all_gather_single": (0, "output_tensor"),
    "all_gather_coalesced": (0, "output_tensor_lists"),
    "reduce_scatter_single": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}

RECEIVES = {PREFIX + name: place for name, place in _RECEIVES.items()}
"""Name as in the list of functions -> (position, name) of the argument that only receives."""
