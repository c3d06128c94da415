"""BoundRun: runs with the same memory every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from .arrays import bound_memory, output_memory
from .device import Taken, has_torch, is_on_device, stream_handle, torch_stream

if TYPE_CHECKING:
    from .session import Session


class BoundRun:
    """Runs of a session with the same inputs and outputs, from `Session.bind`. It keeps their memory; its end waits for
    runs of run_async. One run at a time: other threads wait. Elements of inputs are those at the time of a run; what fills
    tensors on the GPU must be there when a run begins, or be earlier work of its stream."""

    def __init__(self, session: Session, inputs: Mapping[str, Any], out: Mapping[str, Any]):
        if session._values:
            raise _core.UnsupportedError("the model has inputs or outputs that are strings or no tensors, "
                                         "whose memory cannot be bound; use run")
        self.outputs = {o.name: out[o.name] for o in session.outputs}
        self._device = session._core.device
        values = [*inputs.values(), *self.outputs.values()]
        self._of_torch = self._device is not None and has_torch(values)
        taken, on = None, 0
        if any(map(is_on_device, values)):
            if session._streams is None:
                raise _core.ModelError("what is bound is in memory of a GPU, and the session runs on the CPU; "
                                       'give it the option device="cuda"')
            on = session._streams.own()
            taken = Taken(on, self._device)
        given: list[Any] = []
        for name, value in inputs.items():
            if taken is not None and is_on_device(value):
                tensor = taken.tensor(f"input '{name}'", value)
                given.append((name, tensor.type, tensor.dims, tensor))
            else:
                given.append(bound_memory(name, value))
        memory = [taken.tensor(f"out['{name}']", value, writable=True) if taken is not None and is_on_device(value)
                  else output_memory(name, value) for name, value in self.outputs.items()]
        if taken is not None:
            _core.wait_for_stream(f"cuda:{self._device}", on)  # the streams of runs are not known yet
        self._core = _core.BoundRun(session._core, given, memory)

    def run(self, stream: Any = None) -> dict[str, Any]:
        """Runs, waits, and gives the bound outputs: {name: array}. Without a stream of the caller's it is work of torch's
        current stream, where tensors of torch on a GPU are bound, else of one of the session's own."""
        if stream is not None:
            self._core.run_on(stream_handle(stream))
        elif self._of_torch:
            self._core.run_on(torch_stream(self._device))
        else:
            self._core.run()
        return self.outputs

    def run_async(self, stream: Any) -> dict[str, Any]:
        """As work of the stream that is not waited for, as `Session.run_async`. For outputs on the GPU."""
        self._core.run_async(stream_handle(stream))
        return self.outputs
