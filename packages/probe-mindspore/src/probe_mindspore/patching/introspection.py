"""Let code that inspects, copies or rewrites functions of MindSpore find the originals, as it would without Probe.

The calls that saving and loading checkpoints make are not recorded.
"""

from mindspore import nn
from probe_runtime import patching
from probe_runtime.patching import Function, Place, attributes_of, quiet, suspended

from .wrappers import switch

# They rewrite a Cell's source and look names up in it, so they run with the originals. For compilation the jit guard
# does the same.
_SUSPENDED = (
    ("mindspore.amp", "auto_mixed_precision"),
    ("mindspore.amp", "custom_mixed_precision"),
    ("mindspore.amp", "build_train_network"),
    ("mindspore.rewrite.SymbolTree", "create"),
)
# The functions that these call are not the model's calls.
_QUIET = tuple(
    (module, name)
    for module in ("mindspore", "mindspore.train", "mindspore.train.serialization")
    for name in (
        *("save_checkpoint", "load_checkpoint", "load_checkpoint_async", "load_param_into_net"),
        *("ckpt_to_safetensors", "safetensors_to_ckpt"),
    )
)


def guards() -> list[Place]:
    """Return the places that let MindSpore's rewriting of a Cell run with the originals, and keep checkpoints quiet.

    The others are those of `probe_runtime.patching.guards`.
    """
    return [*patching.guards(nn.Cell), *attributes_of(_SUSPENDED, _suspended), *attributes_of(_QUIET, quiet)]


def _suspended(original: Function) -> Function:
    return suspended(original, switch)
