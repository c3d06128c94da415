"""Trains the digit classifier of this folder and exports it to digits.onnx.

The data are the 1,797 scanned 8x8 digits bundled with scikit-learn (a copy of the UCI "optical recognition of
handwritten digits" test set). A fifth of them is held out; digits.npz holds it complete, images/ some of it as PNG,
named <index in the data set>_<label>.png. The network sees grey values divided by 255.

    python3 -m venv venv && venv/bin/pip install --require-hashes -r requirements.txt && venv/bin/python train.py
"""

import argparse
import pathlib
import struct
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = pathlib.Path(__file__).parent


class Conv:
    """3x3 convolution with padding 1, NCHW, by im2col."""

    def __init__(self, rng, cin, cout):
        self.params = [rng.normal(0, np.sqrt(2 / (cin * 9)), (cout, cin, 3, 3)).astype(np.float32),
                       np.zeros(cout, np.float32)]

    def forward(self, x):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * 9)
        self.shape = x.shape
        weight, bias = self.params
        y = self.columns @ weight.reshape(len(weight), -1).T + bias
        return y.reshape(x.shape[0], x.shape[2], x.shape[3], -1).transpose(0, 3, 1, 2)

    def backward(self, dy):
        n, c, h, w = self.shape
        dy = dy.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        weight, _ = self.params
        self.grads = [(dy.T @ self.columns).reshape(weight.shape), dy.sum(0)]
        dwindows = (dy @ weight.reshape(len(weight), -1)).reshape(n, h, w, c, 3, 3)
        dx = np.zeros((n, c, h + 2, w + 2), np.float32)
        for i in range(3):
            for j in range(3):
                dx[:, :, i:i + h, j:j + w] += dwindows[..., i, j].transpose(0, 3, 1, 2)
        return dx[:, :, 1:-1, 1:-1]


class Gemm:
    def __init__(self, rng, cin, cout):
        self.params = [rng.normal(0, np.sqrt(2 / cin), (cout, cin)).astype(np.float32), np.zeros(cout, np.float32)]

    def forward(self, x):
        self.x = x
        return x @ self.params[0].T + self.params[1]

    def backward(self, dy):
        self.grads = [dy.T @ self.x, dy.sum(0)]
        return dy @ self.params[0]


class Relu:
    params = []

    def forward(self, x):
        self.mask = x > 0
        return x * self.mask

    def backward(self, dy):
        return dy * self.mask


class MaxPool:
    """2x2 windows, stride 2."""
    params = []

    def forward(self, x):
        n, c, h, w = x.shape
        windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
        self.shape, self.arg = x.shape, windows.argmax(-1)[..., None]
        return windows.max(-1)

    def backward(self, dy):
        n, c, h, w = self.shape
        windows = np.zeros((n, c, h // 2, w // 2, 4), np.float32)
        np.put_along_axis(windows, self.arg, dy[..., None], -1)
        return windows.reshape(n, c, h // 2, w // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h, w)


class Flatten:
    params = []

    def forward(self, x):
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy):
        return dy.reshape(self.shape)


def build_network(rng):
    return [Conv(rng, 1, 16), Relu(), Conv(rng, 16, 32), Relu(), MaxPool(), Conv(rng, 32, 32), Relu(), MaxPool(),
            Flatten(), Gemm(rng, 128, 64), Relu(), Gemm(rng, 64, 10)]


def predict(network, x):
    for layer in network:
        x = layer.forward(x)
    return x


def shifted(rng, images):
    """Every image moved by at most one pixel in each direction."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dy, dx = rng.integers(0, 3, (2, len(images)))
    return np.stack([padded[i, :, y:y + 8, x:x + 8] for i, (y, x) in enumerate(zip(dy, dx))])


def train(network, rng, images, labels, epochs, batch=64):
    layers = [layer for layer in network if layer.params]
    moments = [[(np.zeros_like(p), np.zeros_like(p)) for p in layer.params] for layer in layers]
    steps, step = epochs * -(-len(images) // batch), 0
    for epoch in range(epochs):
        loss = 0.0
        order = rng.permutation(len(images))
        for start in range(0, len(order), batch):
            pick = order[start:start + batch]
            logits = predict(network, shifted(rng, images[pick]))
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            rows = np.arange(len(pick))
            loss -= np.log(p[rows, labels[pick]] + 1e-9).sum()
            p[rows, labels[pick]] -= 1
            gradient = p / len(pick)
            for layer in reversed(network):
                gradient = layer.backward(gradient)
            step += 1
            rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * step / steps))  # Adam, cosine schedule
            for layer, layer_moments in zip(layers, moments):
                for param, grad, (m, v) in zip(layer.params, layer.grads, layer_moments):
                    m += 0.1 * (grad - m)
                    v += 0.001 * (grad * grad - v)
                    param -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss / len(images):.4f}", flush=True)


def export(network, path):
    nodes, weights, value = [], [], "image"
    for i, layer in enumerate(network):
        kind, inputs = type(layer).__name__, [value]
        for name, param in zip(("weight", "bias"), layer.params):
            inputs.append(f"{kind.lower()}{i}.{name}")
            weights.append(numpy_helper.from_array(np.ascontiguousarray(param), inputs[-1]))
        attributes = {"Conv": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]), "Gemm": dict(transB=1),
                      "MaxPool": dict(kernel_shape=[2, 2], strides=[2, 2])}.get(kind, {})
        value = f"{kind.lower()}{i}"
        nodes.append(helper.make_node(kind, inputs, [value], name=value, **attributes))
    nodes.append(helper.make_node("Softmax", [value], ["probabilities"], name="softmax", axis=-1))
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])], weights,
        doc_string="Scanned handwritten digits, grey values in [0, 1], to the probabilities of 0..9.")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                              producer_name="examples/digits/train.py")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def write_png(path, image):
    """An 8-bit grey PNG."""
    height, width = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)

    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    options = parser.parse_args()

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # the scans have 17 grey levels
    train_index, test_index = train_test_split(np.arange(len(pixels)), test_size=0.2, random_state=0,
                                               stratify=digits.target)
    test_index = np.sort(test_index)
    images, labels = (pixels / 255).astype(np.float32)[:, None], digits.target

    rng = np.random.default_rng(0)
    network = build_network(rng)
    train(network, rng, images[train_index], labels[train_index], options.epochs)
    right = predict(network, images[test_index]).argmax(1) == labels[test_index]
    print(f"held out: {right.sum()} of {len(right)} right, accuracy {right.mean():.4f}")

    export(network, options.out / "digits.onnx")
    np.savez_compressed(options.out / "digits.npz", images=pixels[test_index][:, None],
                        labels=labels[test_index].astype(np.int64), index=test_index)
    folder = options.out / "images"
    folder.mkdir(exist_ok=True)
    for label in range(10):
        for index in test_index[labels[test_index] == label][:4]:
            write_png(folder / f"{index:04d}_{label}.png", pixels[index])


if __name__ == "__main__":
    main()
