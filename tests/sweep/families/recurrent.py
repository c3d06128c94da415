"""LSTM, GRU and RNN with what they may be given."""
from __future__ import annotations


from ..builder import Builder, Value


def layer(b: Builder) -> None:
    op = b.choice(("LSTM", "LSTM", "GRU", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch = b.sizes(lambda: b.choice((1, 2, 5, 16, 33, 50))), b.sizes(lambda: b.choice((1, 1, 2, 4, 17)))
    width, hidden = b.choice((1, 3, 16, 32, 64, 100, 128, 256)), b.choice((1, 5, 16, 32, 33, 64, 100, 128, 200, 256))
    direction = b.choice(("forward", "forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    count = max(steps[r] * batch[r] for r in range(b.runs)) * d * gates * hidden
    b.sums(count, width)
    b.sums(count, hidden)
    b.terms += hidden  # errors go from step to step, but gates squash them
    b.gain *= 4
    size = lambda s: s if b.dynamic else s[0]  # noqa: E731
    x = b.input([size(steps), size(batch), width])
    inputs: list[Value | None] = [x, b.weights([d, gates * hidden, width], width), b.weights([d, gates * hidden, hidden], hidden),
                                  b.weights([d, 2 * gates * hidden], 4) if b.chance(0.7) else None]
    if b.chance(0.3):
        inputs.append(b.input([size(batch)], "i32", [lambda rng, shape, s=s: rng.integers(1, s + 1, shape) for s in steps]))
    else:
        inputs.append(None)
    state = [d, size(batch), hidden]
    for wanted in ([b.chance(0.4)] * 2 if op == "LSTM" else [b.chance(0.4)]):
        inputs.append(b.input(state) if wanted else None)
    if op == "LSTM" and b.chance(0.2):
        inputs.append(b.weights([d, 3 * hidden], 9))
    while inputs[-1] is None:
        inputs.pop()
    more = {"linear_before_reset": b.integer(0, 1)} if op == "GRU" else {}
    if op == "RNN" and b.chance(0.4):
        more["activations"] = [b.choice(("Relu", "Sigmoid", "Tanh"))] * d
        b.gain *= 4 if more["activations"][0] == "Relu" else 1
    if b.chance(0.15):
        more["clip"] = 1.5
    y = b.node(op, inputs, [(steps[r], d, batch[r], hidden) for r in range(b.runs)], outputs=3 if op == "LSTM" else 2,
               hidden_size=hidden, direction=direction, **more)
    states = [(d, batch[r], hidden) for r in range(b.runs)]
    b.output(y, *[Value(n, states, b.dtype) for n in b.others()[1:]])
