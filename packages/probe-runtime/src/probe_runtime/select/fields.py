"""Select the parts of records that a configuration keeps, by `data_mode`."""

from attrs import frozen

from probe_runtime.config.config import Config


@frozen
class Fields:
    """The parts of a record that are kept."""

    input: bool = True
    """input_args and input_kwargs of a forward record."""
    output: bool = True
    """output of a forward record."""
    parameters: bool = True
    """parameters of a module's forward record."""
    backward_input: bool = True
    """input of a backward record: the gradients of the outputs."""
    backward_output: bool = True
    """output of a backward record: the gradients of the inputs."""
    parameters_grad: bool = True
    """The parameters_grad records."""

    @property
    def forward(self) -> bool:
        return self.input or self.output

    @property
    def backward(self) -> bool:
        return self.backward_input or self.backward_output


def fields_of(config: Config) -> Fields:
    """Return the fields that `data_mode` keeps: forward and backward choose records, input and output their parts.

    Where neither of a pair is named both are kept. Parameters go with the forward output, and
    parameters_grad with the backward pass, whichever part is chosen, as in msprobe.
    """
    mode = config.data_mode

    def wanted(this: str, other: str) -> bool:
        return this in mode or other not in mode

    forward, backward = wanted("forward", "backward"), wanted("backward", "forward")
    into, out = wanted("input", "output"), wanted("output", "input")
    return Fields(
        input=forward and into,
        output=forward and out,
        parameters=forward and out,
        backward_input=backward and into,
        backward_output=backward and out,
        parameters_grad=backward,
    )
