"""Models and inputs that ask for more than anybody has: refused or stopped in time, with little memory."""

from __future__ import annotations

import os
import re
import resource
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

tensorbox = pytest.importorskip("tensorbox")

HEADER = '<ir_version: 10, opset_import: ["": 24]> '


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png() -> bytes:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def bmp() -> bytes:
    return (b"BM" + struct.pack("<IHHI", 1000, 0, 0, 54)
            + struct.pack("<IiiHHIIiiII", 40, 2**31 - 1, 2**31 - 1, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(946))


def jpeg() -> bytes:
    tables = b"\xff\xdb\x00\x43\x00" + bytes([1] * 64)
    size = struct.pack(">HBHHB", 17, 8, 65_500, 65_500, 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0])
    scan = b"\xff\xda\x00\x0c\x03" + bytes([1, 0, 2, 0, 3, 0, 0, 63, 0])
    return b"\xff\xd8" + tables + b"\xff\xc2" + size + scan + bytes(100) + b"\xff\xd9"


def webp() -> bytes:
    bits = (16_383) | (16_383 << 14)  # sizes less one
    data = b"\x2f" + struct.pack("<I", bits) + bytes(100)
    return b"RIFF" + struct.pack("<I", 12 + len(data)) + b"WEBPVP8L" + struct.pack("<I", len(data)) + data


def tiff() -> bytes:
    entries = [(256, 4, 1, 2**31), (257, 4, 1, 2**31), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
               (277, 3, 1, 1), (278, 4, 1, 2**31), (279, 4, 1, 100)]
    return (b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries))
            + b"".join(struct.pack("<HHII", *e) for e in entries) + bytes(104))


def jpeg_2000() -> bytes:
    size = struct.pack(">HHIIIIIIIIH", 41, 0, 2**31 - 1, 2**31 - 1, 0, 0, 2**31 - 1, 2**31 - 1, 0, 0, 1) + bytes([7, 1, 1])
    coding = b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x05\x04\x04\x00\x00"
    return b"\xff\x4f\xff\x51" + size + coding + b"\xff\x5c\x00\x04\x40\x40" + b"\xff\xd9"


def pnm() -> bytes:
    return b"P6\n1000000 1000000\n255\n" + bytes(100)


@pytest.mark.parametrize("image", [png, bmp, jpeg, webp, tiff, jpeg_2000, pnm])
def test_images_of_giant_sizes(image: Callable[[], bytes]) -> None:
    session = tensorbox.Session(model("g (uint8[N] x) => (uint8[H, W, 3] y) { y = ImageDecoder(x) }"), compile=False)
    before = peak_memory()
    with pytest.raises(tensorbox.ModelError, match=r"node 'y' \(ImageDecoder"):
        session.run({"x": np.frombuffer(image(), np.uint8)})
    assert peak_memory() - before < 1 << 29


@pytest.mark.parametrize("compiled", [False, True])
def test_a_long_kernel_ends_in_time(compiled: bool) -> None:
    # 2^33 additions for each result, which need no memory.
    text = """g (float[N] x, float[M, 1, 1] z) => (float[M] y) {
      s = Constant<value = int64[3] {1, 16384, 524288}>()
      e = Expand(z, s)  n = Exp(e)  a = Constant<value = int64[2] {1, 2}>()  y = ReduceSum<keepdims = 0>(n, a) }"""
    session = tensorbox.Session(model(text), compile=compiled, threads=1, time_limit_ms=300, load_time_limit_ms=60_000)
    start = time.monotonic()
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 300 ms"):
        session.run({"x": np.zeros(3, np.float32), "z": np.zeros((4096, 1, 1), np.float32)})
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("what", ["constant", "size of an input", "element of an input"])
def test_a_long_sum_of_numbers_in_no_memory(what: str) -> None:
    """Native code is not interrupted within a result: each of these would take it hours."""
    size = {"constant": "s = Constant<value = int64[1] {17592186044416}>()",
            "size of an input": "f = Constant<value = int64[1] {17592186044416}>()  k = Shape(z)  s = Mul(k, f)",
            "element of an input": "s = Identity(n)"}[what]
    text = f"g (float[K] z, int64[1] n) => (float y) {{ {size}  e = Expand(z, s)  m = Exp(e)  y = ReduceSum<keepdims = 0>(m) }}"
    session = tensorbox.Session(model(text), time_limit_ms=300, load_time_limit_ms=60_000)
    with pytest.raises(tensorbox.ModelError, match="which no memory holds|longer than the limit"):
        session.run({"z": np.zeros(1, np.float32), "n": np.array([2**44])})


def test_a_long_sum_of_numbers_in_memory_runs() -> None:
    """Sizes that only a run knows are held against what memory holds."""
    text = "g (float[N, M] x) => (float[N] y) { a = Constant<value = int64[1] {1}>()  y = ReduceSum<keepdims = 0>(x, a) }"
    session = tensorbox.Session(model(text), untrusted=True)
    assert "no memory" not in session.dump("plan")
    np.testing.assert_array_equal(session.run({"x": np.ones((2, 1001), np.float32)})["y"], [1001, 1001])


@pytest.mark.parametrize("what", ["NonMaxSuppression", "Det", "Inverse"])
def test_long_work_of_the_host_ends_in_time(what: str) -> None:
    """Boxes none of which overlap, held each against all; matrices of 4,000 rows: 10 s and more without a limit."""
    n, g = 300_000, np.random.default_rng(1)
    x = np.arange(0.0, n, dtype=np.float32)
    # Neighbours overlap too little to be left out, but enough to be compared with all.
    boxes = np.stack([x * 0, x * 0.7, x * 0 + 1, x * 0.7 + 1], -1)[None]
    text = {"NonMaxSuppression": """g (float[1, N, 4] b, float[1, 1, N] s) => (int64[K, 3] y) { k = Constant<value_int = 1000000>()
              t = Constant<value_float = 0.9>()  y = NonMaxSuppression(b, s, k, t) }""",
            "Det": "g (float[N, N] m) => (float y) { y = Det(m) }",
            "Inverse": "g (float[N, N] m) => (float[N, N] y) { y = com.microsoft.Inverse(m) }"}[what]
    header = '<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]> '
    session = tensorbox.Session(onnx.parser.parse_model(header + text), compile=False, time_limit_ms=300, load_time_limit_ms=60_000)
    feeds = {"b": boxes, "s": g.random((1, 1, n), np.float32)} if what == "NonMaxSuppression" else {
        "m": g.standard_normal((4000, 4000)).astype(np.float32)}
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 300 ms"):
        session.run(feeds)


def regression_trees() -> onnx.ModelProto:
    """One tree, whose 100,000 conditions every row meets one after another."""
    depth, m = 100_000, model("g (float[N, 1] x) => (float[N, 1] y) { y = ai.onnx.ml.TreeEnsembleRegressor(x) }")
    m.opset_import.add(domain="ai.onnx.ml", version=1)
    ids, leaf = np.arange(2 * depth + 1), np.arange(2 * depth + 1) % 2 == 1
    leaf[-1] = True
    attributes = dict(
        n_targets=1, nodes_treeids=[0] * len(ids), nodes_nodeids=ids, nodes_featureids=[0] * len(ids), nodes_values=[-1.0] * len(ids),
        nodes_modes=["LEAF" if end else "BRANCH_LEQ" for end in leaf], nodes_truenodeids=np.where(leaf, 0, ids + 1),
        nodes_falsenodeids=np.where(leaf, 0, ids + 2), target_treeids=[0] * int(leaf.sum()), target_nodeids=ids[leaf],
        target_ids=[0] * int(leaf.sum()), target_weights=[1.0] * int(leaf.sum()))
    m.graph.node[0].attribute.extend(onnx.helper.make_attribute(k, v.tolist() if isinstance(v, np.ndarray) else v) for k, v in attributes.items())
    return m


def support_vectors() -> onnx.ModelProto:
    n, m = 20_000, model("g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.SVMRegressor(x) }")
    m.opset_import.add(domain="ai.onnx.ml", version=1)
    attributes = dict(kernel_type="POLY", kernel_params=[0.1, 1.0, 2.5], n_supports=n, rho=[0.0], coefficients=[1.0] * n,
                      support_vectors=[0.5] * (2 * n))
    m.graph.node[0].attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    return m


def microsoft(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]> ' + text)


LONG_WORK: dict[str, Callable[[], tuple[onnx.ModelProto, dict[str, np.ndarray]]]] = {
    "trees": lambda: (regression_trees(), {"x": np.zeros((300_000, 1), np.float32)}),
    "support vectors": lambda: (support_vectors(), {"x": np.ones((100_000, 2), np.float32)}),
    "repeated n-grams": lambda: (
        microsoft("g (int64[B, N] t, float[B, 9] s) => (float[B, 9] y) { y = com.microsoft.NGramRepeatBlock<ngram_size = 200000>(t, s) }"),
        {"t": np.ones((1, 400_000), np.int64), "s": np.zeros((1, 9), np.float32)}),
    "n-grams of a draft": lambda: (
        microsoft("""g (int64[N] s, int64[C] c, int64 p) => (int64[T] y, int64 at) {
          y, at = com.microsoft.BifurcationDetector<min_ngram_size = 150000, max_ngram_size = 150000>(s, c, p) }"""),
        {"s": np.zeros(300_000, np.int64), "c": np.append(np.zeros(200_000, np.int64), 1), "p": np.array(0)}),
    "n-grams with gaps": lambda: (
        model("""g (int64[N] t) => (float[2] y) { y = TfIdfVectorizer<mode = "TF", min_gram_length = 2, max_gram_length = 2,
          max_skip_count = 1000000, ngram_counts = [0, 1], ngram_indexes = [0, 1], pool_int64s = [1, 1, 1]>(t) }"""),
        {"t": np.ones(100_000, np.int64)}),
    "linear attention": lambda: (
        microsoft("""g (float[B, T, D] q, float[B, T, D] k, float[B, T, D] v) => (float[B, T, D] y, float[B, 1, D, D] s) {
          y, s = com.microsoft.LinearAttention<q_num_heads = 1, kv_num_heads = 1, update_rule = "linear">(q, k, v) }"""),
        {name: np.zeros((1, 20_000, 2048), np.float32) for name in "qkv"}),
    "a transform of a prime length": lambda: (
        model("g (float[1, N, 1] x) => (float[1, N, 2] y) { a = Constant<value_int = 1>()  y = DFT(x, , a) }"),
        {"x": np.zeros((1, 39_916_801, 1), np.float32)}),
    "a sum for each frequency": lambda: (
        model("g (float[1, N, 1] x) => (float[1, N, 2] y) { a = Constant<value_int = 1>()  y = DFT(x, , a) }"),
        {"x": np.zeros((1, 200_003, 1), np.float32)}),
}


@pytest.mark.parametrize("what", LONG_WORK)
def test_more_long_work_of_the_host_ends_in_time(what: str) -> None:
    """Each takes 10 s and more without a limit."""
    made, feeds = LONG_WORK[what]()
    session = tensorbox.Session(made, compile=False, time_limit_ms=300, load_time_limit_ms=60_000, reference="sum" in what)
    start = time.monotonic()
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 300 ms"):
        session.run(feeds)
    assert time.monotonic() - start < 5


def transform(length: int) -> onnx.ModelProto:
    return model(f"""g (float[1, N, 1] x) => (float[1, M, 2] y) {{
      n = Constant<value_int = {length}>()  a = Constant<value_int = 1>()  y = DFT(x, n, a) }}""")


def test_a_transform_that_no_memory_holds() -> None:
    """It takes 16 bytes and more per element while it is computed, beside a result of 8."""
    length = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 12
    with pytest.raises(tensorbox.ModelError, match="takes more memory than there is"):
        tensorbox.Session(transform(length), compile=False).run({"x": np.ones((1, 3, 1), np.float32)})


@pytest.mark.parametrize("length", [1_048_583, 1_100_000])
def test_what_a_transform_works_in_counts(length: int) -> None:
    """A prime, which takes most, and one of small factors."""
    result = 8 * length
    feeds = {"x": np.ones((1, 3, 1), np.float32)}
    with pytest.raises(tensorbox.ModelError, match=f"DFT.*a transform of length {length} takes .* \\(raise max_memory"):
        tensorbox.Session(transform(length), compile=False, max_memory=result + (1 << 20), load_memory=1 << 30).run(feeds)
    session = tensorbox.Session(transform(length), compile=False, max_memory=16 * result, load_memory=1 << 30)
    assert session.run(feeds)["y"].shape == (1, length, 2)


NOTHING = {
    "columns": ("y = Compress<axis = 1>(x, c)", (2**40, 5, 0), (2**40, 5, 0)),
    "rows of nothing": ("y = Compress<axis = 2>(x, c)", (2**20, 2**20, 0), (2**20, 2**20, 0)),
    "unique columns": ("y = Unique<axis = 1>(x)", (2**40, 5, 0), (2**40, 1, 0)),
    "unique columns of none": ("y = Unique<axis = 2>(x)", (2**20, 2**20, 0), (2**20, 2**20, 0)),
    "boxes": ("y = NonMaxSuppression(x, s, k, t)", (2**40, 0, 4), (0, 3)),
    "boxes of no image": ("y = NonMaxSuppression(x, s, k, t)", (0, 2**31 - 1, 4), (0, 3)),
}


@pytest.mark.parametrize("what", NOTHING)
def test_host_kernels_have_nothing_to_do(what: str) -> None:
    """Sizes without elements take no memory, but loops over them had no end."""
    node, sizes, expected = NOTHING[what]
    session = tensorbox.Session(model(f"""g (float[A, B, C] x, bool[D] c, float[A, E, B] s) => ({"int64" if "boxes" in what else "float"} y) {{
      k = Constant<value_int = 5>()  t = Constant<value_float = 0.5>()  {node} }}"""), compile=False, time_limit_ms=5000)
    feeds = {"x": np.zeros(sizes, np.float32), "c": np.ones(5, bool), "s": np.zeros((sizes[0], 0, sizes[1]), np.float32)}
    before = peak_memory()
    assert session.run({i.name: feeds[i.name] for i in session.inputs})["y"].shape == expected
    assert peak_memory() - before < 1 << 27


def tokenizer(expression: str) -> str:
    return f'y = com.microsoft.Tokenizer<mark = 0, mincharnum = 1, pad_value = "", tokenexp = "{expression}">(x)'


TEXTS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "a token, looked for up to the end": (f"string y) {{ {tokenizer('a.*b|a')} }}", lambda: ["a" * 300_000]),
    "tokens": (f"string y) {{ {tokenizer('[a-z]+')} }}", lambda: ["ab cd"] * 1_000_000),
    "matches": ('bool y) { y = RegexFullMatch<pattern = "[a-z ]+">(x) }', lambda: ["ab cd"] * 1_000_000),
    "parts": ("string y, int64 n) { y, n = StringSplit(x) }", lambda: ["ab cd"] * 1_000_000),
    "cases": ('string y) { y = StringNormalizer<case_change_action = "UPPER">(x) }', lambda: ["ab cd" * 8] * 500_000),
    "numbers": ("float y) { y = Cast<to = 1>(x) }", lambda: ["1.234567e-3"] * 2_000_000),
}


@pytest.mark.parametrize("what", TEXTS)
def test_many_and_long_texts_end_in_time(what: str) -> None:
    text, texts = TEXTS[what]
    session = tensorbox.Session(microsoft(f"g (string[N] x) => ({text}"), compile=False, time_limit_ms=20, load_time_limit_ms=60_000)
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 20 ms"):
        session.run({"x": np.array(texts(), object)})


def test_a_text_that_is_like_its_delimiter_at_each_place() -> None:
    """A search that begins anew at each place compares 10^12 bytes."""
    delimiter = "a" * 1_000_000 + "b"
    session = tensorbox.Session(model(f'g (string[N] x) => (string[N, M] y, int64[N] c) {{ y, c = StringSplit<delimiter = "{delimiter}">(x) }}'),
                                compile=False)
    texts = ["a" * 3_000_000, "a" * 500_000 + delimiter + "c" + delimiter, ""]
    got = session.run({"x": np.array(texts, object)})
    assert got["c"].tolist() == [1, 3, 1]
    assert got["y"].tolist() == [part + [""] * (3 - len(part)) for part in (t.split(delimiter) for t in texts)]


def test_an_expression_too_long_for_a_text() -> None:
    """What the library compares in one call may take hours."""
    session = tensorbox.Session(model(f'g (string[N] x) => (bool[N] y) {{ y = RegexFullMatch<pattern = "[ab]*a{"[ab]" * 2000}">(x) }}'),
                                compile=False)
    assert session.run({"x": np.array(["ba" * 1001, "ab" * 1001], object)})["y"].tolist() == [True, False]
    with pytest.raises(tensorbox.ModelError, match="too long for a regular expression"):
        session.run({"x": np.array(["ab" * 5_000_000], object)})


@pytest.mark.parametrize("what", ["joined strings", "maps", "scanned", "mapped"])
def test_what_values_gather_counts(what: str) -> None:
    copies = "s0 = SequenceConstruct(x)  " + "  ".join(f"s{i + 1} = SequenceInsert(s{i}, x)" for i in range(40))
    text, x = {
        "joined strings": (f"g (string[N] x) => (string[M] y) {{ {copies}  y = ConcatFromSequence<axis = 0>(s40) }}",
                           np.array(["x" * (1 << 21)], object)),
        "maps": ("g (float[N, 1] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [1]>(x) }",
                 np.zeros((1 << 19, 1), np.float32)),
        "scanned": ("""g (float[N, 1] x) => (float[N, M] y) { s = Constant<value = int64[1] {1048576}>()
          y = Scan<num_scan_inputs = 1, body = b (float[1] p) => (float[M] t) { t = Expand(p, s) }>(x) }""", np.zeros((64, 1), np.float32)),
        "mapped": ("""g (float[N, 1] x) => (int64 y) { s = Constant<value = int64[1] {1048576}>()  q = SplitToSequence(x)
          r = SequenceMap<body = b (float[1, 1] p) => (float[A, M] t) { t = Expand(p, s) }>(q)  y = SequenceLength(r) }""",
                   np.zeros((64, 1), np.float32))}[what]
    made = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 24, "ai.onnx.ml": 4]> ' + text)
    session = tensorbox.Session(made, compile=False, max_memory=1 << 26, load_memory=1 << 30)
    with pytest.raises(tensorbox.ModelError, match="there is memory for 67108864 bytes|the limit is 67108864"):
        session.run({"x": x})


@pytest.mark.parametrize("what", ["chain", "loop"])
def test_strings_that_double(what: str) -> None:
    twice = "  ".join(f"s{i + 1} = StringConcat(s{i}, s{i})" for i in range(28))
    text = {"chain": f"g (string[1] s0) => (string[1] s28) {{ {twice} }}",
            "loop": """g (string[1] s0) => (string[1] y) { n = Constant<value_int = 28>()
              y = Loop<body = b (int64 i, bool k, string[1] s) => (bool k2, string[1] t) { k2 = Identity(k)  t = StringConcat(s, s) }>(n, , s0) }"""}[what]
    session = tensorbox.Session(model(text), max_memory=1 << 26)
    with pytest.raises(tensorbox.ModelError, match=r"\(StringConcat, opset 24\).*there is memory for 67108864 bytes"):
        session.run({"s0": np.array(["x"])})


@pytest.mark.parametrize("what", ["elements", "labels", "fillers"])
def test_long_strings_that_are_repeated(what: str) -> None:
    long, count = "x" * (1 << 20), 256
    text = {"elements": "g (string[1] s, int64[N] i) => (string[N] y) { y = Gather(s, i) }",
            "labels": f'g (string[1] s, int64[N] i) => (string[N] y) {{ y = ai.onnx.ml.LabelEncoder<keys_int64s = [0], values_strings = ["{long}"]>(i) }}',
            "fillers": f"""g (string[1] s, int64[N] i) => (string[N, M] y) {{ n = Shape(i)  t = Expand(s, n)
              y = com.microsoft.Tokenizer<mark = 0, mincharnum = 1, pad_value = "{long}", separators = [" "]>(t) }}"""}[what]
    made = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1, "ai.onnx.ml": 4]> ' + text)
    session = tensorbox.Session(made, max_memory=1 << 26)
    feeds = {"s": np.array(["a b" if what == "fillers" else long]), "i": np.zeros(count, np.int64)}
    with pytest.raises(tensorbox.ModelError, match="there is memory for 67108864 bytes"):
        session.run(feeds)


def of_memory(what: str) -> int:
    return int(re.findall(rf"{what}:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10


def test_memory_of_many_parts() -> None:
    m = model("""g (float[N] x, int64 at) => (int64 n, float[1] y) {
      s = SplitToSequence(x)  n = SequenceLength(s)  y = SequenceAt(s, at) }""")
    session = tensorbox.Session(m, compile=False)
    x = np.arange(3_000_000, dtype=np.float32)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is there now
    before = of_memory("VmHWM")
    got = session.run({"x": x, "at": np.array(2_345_678)})
    assert got["n"] == len(x) and got["y"] == [2_345_678]
    assert of_memory("VmHWM") - before < 200 * len(x)


def test_loops_in_loops_end_in_time() -> None:
    body = "o = Identity(q)"
    for depth in range(8):
        body = f"""t{depth} = Constant<value = int64 {{1000000000}}>()  o = Loop<body = b{depth} (int64 i, bool k, float p)
          => (bool k2, float o) {{ k2 = Identity(k)  q = Neg(p)  {body} }}>(t{depth}, , q)"""
    session = tensorbox.Session(model(f"g (float q) => (float o) {{ {body} }}"), compile=False, time_limit_ms=300,
                                load_time_limit_ms=60_000)
    start = time.monotonic()
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 300 ms"):
        session.run({"q": np.float32(1)})
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("size", [[2**20, 2**20, 2**20], [2**60], [2**31, 2**31]])
def test_sizes_of_a_run(size: list[int]) -> None:
    session = tensorbox.Session(model("g (int64[K] s) => (float[?] y) { y = ConstantOfShape(s) }".replace("[?]", "")),
                                compile=False, max_memory=1 << 28)
    with pytest.raises(tensorbox.ModelError, match=r"node 'y' \(ConstantOfShape"):
        session.run({"s": np.array(size, np.int64)})


@pytest.mark.parametrize(("indices", "updates", "message"), [("int64", "int64", "the updates are int64, the data is float32"),
                                                             ("float", "float", "the indices are float32")])
def test_a_deprecated_operator_of_other_types(indices: str, updates: str, message: str) -> None:
    """ONNX checks no types of these."""
    text = f'<ir_version: 8, opset_import: ["": 11]> g (float[3, 3] x, {indices}[2, 3] i, {updates}[2, 3] u) => (float[3, 3] y) {{ y = Scatter(x, i, u) }}'
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(onnx.parser.parse_model(text), compile=False)


def test_the_memory_limit_counts_outputs() -> None:
    session = tensorbox.Session(model("g (float[N] x) => (float[N] y) { y = Neg(x) }"), compile=False, max_memory=1000)
    session.run({"x": np.zeros(100, np.float32)})
    with pytest.raises(tensorbox.ModelError, match=r"node 'y' \(Neg\).*the limit is 1000.*raise max_memory \(tbx: --max-memory\)"):
        session.run({"x": np.zeros(1000, np.float32)})


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("node", ["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"])
def test_rows_without_elements_end_in_time(node: str, compiled: bool) -> None:
    """2^46 of them, in a tensor of 0 bytes."""
    session = tensorbox.Session(model(f"g (float[1, 0] x, int64[2] s) => (float[N, M] y) {{ e = Expand(x, s)  y = {node}(e) }}"),
                                compile=compiled, time_limit_ms=300, load_time_limit_ms=60_000)
    feeds = {"x": np.zeros((1, 0), np.float32), "s": np.array([2**46, 0])}
    start = time.monotonic()
    try:
        assert session.run(feeds)["y"].shape == (2**46, 0)
    except tensorbox.ModelError as error:
        assert "longer than the limit of 300 ms" in str(error)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("gather", ["y = Gather(t, i)", "r = Constant<value = int64[2] {1, 1}>()  j = Reshape(i, r)  y = GatherND(t, j)",
                                    "r = Constant<value = int64[2] {1, 8}>()  j = Expand(i, r)  y = GatherElements(t, j)",
                                    "u = Transpose(t)  y = Gather<axis = 1>(u, i)"])
def test_elements_of_an_empty_result(gather: str, dynamic: bool, compiled: bool) -> None:
    """What is computed in the kernel that gathers from it has no memory of its own to be outside of."""
    text = f"g (float[0, 8] x, float s, int64[1] i) => (float[A, B] y) {{ t = Mul(x, s)  {gather} }}"
    session = tensorbox.Session(model(text), compile=compiled, all_dims_dynamic=dynamic)
    with pytest.raises(tensorbox.ModelError, match="outside an axis of size 0"):
        session.run({"x": np.zeros((0, 8), np.float32), "s": np.float32(2), "i": np.array([5])})


def sparse(values: np.ndarray, places: np.ndarray, dims: list[int]) -> onnx.ModelProto:
    made = model("g (float[5, 6] b) => (float[?] y) { y = com.microsoft.SparseToDenseMatMul(a, b) }".replace("[?]", ""))
    made.opset_import.add(domain="com.microsoft", version=1)
    tensor = made.graph.sparse_initializer.add(dims=dims)
    tensor.values.CopyFrom(onnx.numpy_helper.from_array(values, "a"))
    tensor.indices.CopyFrom(onnx.numpy_helper.from_array(places, "places"))
    return made


@pytest.mark.parametrize("places,dims", [
    ([0, 7, 20], [4, 5]), ([-1, 7, 8], [4, 5]), ([0, 7], [4, 5]), ([0, 2**62, 2**63 - 1], [4, 5]), ([[0, 0], [1, 1], [4, 0]], [4, 5]),
    ([[0, 0], [1, 1], [0, -1]], [4, 5]), ([[0], [1], [2]], [4, 5]), ([0, 1, 2], [2**31, 2**31]), ([0, 1, 2], [2**40, 5]),
    ([0, 1, 2], [-4, 5]), ([0, 1, 2], [])])
def test_sparse_matrices(places: list[int], dims: list[int]) -> None:
    made = sparse(np.array([1, 2, 3], np.float32), np.array(places, np.int64), dims)
    with pytest.raises(tensorbox.Error) as error:
        tensorbox.Session(made, compile=False).run({"b": np.zeros((5, 6), np.float32)})
    assert not isinstance(error.value, tensorbox.InternalError) and "a" in str(error.value)


@pytest.mark.parametrize("operator", ["Max", "Min", "Add", "Mul", "Equal", "Concat"])
@pytest.mark.parametrize("inputs", [["s", ""], ["s", "", "s"]])
def test_an_input_of_shape_arithmetic_that_is_left_out(operator: str, inputs: list[str]) -> None:
    """What computes with sizes while the model is loaded sees that there is nothing."""
    m = model("g (float[a, b] x) => (int64[n] y) { s = Shape(x) y = Max(s) }")
    m.graph.node[1].op_type = operator
    m.graph.node[1].input[:] = inputs
    if operator == "Concat":
        m.graph.node[1].attribute.append(onnx.helper.make_attribute("axis", 0))
    with pytest.raises(tensorbox.ModelError, match="input"):
        tensorbox.Session(m, compile=False).run({"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize("start,end,step", [(0, 3, 2**32), (0, 3, 2**31), (1, 3, 2**63 - 1), (2, -10, -(2**32)), (2, -10, -(2**31)),
                                            (-1, -(2**63), -(2**63)), (-(2**62), 0, -(2**63)), (0, 3, 2)])
def test_long_steps_through_a_shape(start: int, end: int, step: int) -> None:
    """ONNX's own shape inference adds steps to an int: some went round for ever, others read outside of the list."""
    m = model(f"g (float[3, 4, 5] x) => (int64[n] y) <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{0}}, int64[1] t = {{{step}}}>"
              " { z = Shape(x) y = Slice(z, s, e, a, t) }")
    got = tensorbox.Session(m, compile=False).run({"x": np.zeros((3, 4, 5), np.float32)})["y"]
    np.testing.assert_array_equal(got, np.array([3, 4, 5], np.int64)[start:end:step])


@pytest.mark.parametrize("operator", ["SimplifiedLayerNormalization", "Gelu", "Conv"])
def test_nodes_without_outputs(operator: str) -> None:
    """Passes looked at the first output of operators that ONNX has no schema of."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])
    nodes = [onnx.helper.make_node(operator, ["x", "x"][:1 if operator == "Gelu" else 2], []), onnx.helper.make_node("Neg", ["x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "no outputs", [x], [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    m = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(tensorbox.ModelError, match="output"):
        tensorbox.Session(m, compile=False)


@pytest.mark.parametrize("image,kernel,attributes,type_", [
    ("1, 16, 1048576, 1048576", "32, 16, 1, 1", "group = 1", "float"),  # 2^40 pixels: 0 in 32 bits
    ("1, 16, 3, 1073741824", "32, 16, 3, 3", "strides = [2, 2], pads = [1, 1, 1, 1]", "float"),
    ("1, 16, 3, 536870912", "32, 16, 3, 3", "strides = [2, 2], pads = [1, 1, 1, 1]", "float"),
    ("1, 16, 1073741824", "32, 16, 3", "group = 1", "float"), ("1, 16, 1073741824", "32, 16, 3", "group = 1", "float16"),
    ("2, 3, 5, 5, 1073741824", "4, 3, 2, 2, 2", "strides = [2, 2, 2], pads = [1, 1, 1, 1, 1, 1]", "float"),
    ("33554432, 16, 1024", "16, 16, 1", "group = 1", "float16"),  # 2^35 pixels in all
    ("1, 3, 1073741824, 2", "8, 3, 3, 1", "group = 1", "float"), ("1, 16, 3, 1073741824", "32, 16, 3, 3", "group = 1", "uint8")])
@pytest.mark.parametrize("relu", [False, True])
def test_large_images(image: str, kernel: str, attributes: str, type_: str, relu: bool) -> None:
    """The library of convolutions counts pixels in 32 bits, and looked for the length of parts of a line for hours."""
    operator = "ConvInteger" if type_ == "uint8" else "ConvTranspose" if image.startswith("33554432") else "Conv"
    weights, result = ("int8", "int32") if type_ == "uint8" else (type_, type_)
    sizes = [int(n) for n in kernel.split(",")]
    m = model(f"g ({type_}[{image}] x) => ({result}[{', '.join('abcde'[:len(sizes)])}] y) "
              f" {{ {'z' if relu else 'y'} = {operator} <{attributes}> (x, w) {'y = Relu(z)' if relu else ''} }}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(weights.upper()))
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(sizes, dtype), "w"))
    started = time.monotonic()
    tensorbox.Session(m, compile=False, keep_plans=False)
    assert time.monotonic() - started < 5


def test_rows_further_apart_than_the_library_reaches() -> None:
    """The memory of the operands is never touched where the library makes no code for them."""
    m = model("g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }")
    length = 2**26 + 5
    try:
        got = tensorbox.Session(m, compile=False).run({"a": np.zeros((9, length), np.float32), "b": np.zeros((length, 3), np.float32)})["y"]
    except tensorbox.BackendError as error:
        assert re.search(rf"'y' \(MatMul\).* 9 x {length} \(split the product", str(error))
    else:  # the kernels of other CPUs
        np.testing.assert_array_equal(got, np.zeros((9, 3), np.float32))
    # The library's assembler remembered the error for the thread, which could not make anything any more.
    a, b = np.arange(1517, dtype=np.float32).reshape(37, 41), np.arange(1763, dtype=np.float32).reshape(41, 43) % 7
    np.testing.assert_allclose(tensorbox.Session(m, compile=False).run({"a": a, "b": b})["y"], a @ b, rtol=1e-5)


@pytest.mark.parametrize("text", [
    "g (float[1, 3, 7, 3] x) => (float[a, b, c, d] y) <float[3, 2, 3, 2] w = {%s}>"
    " { y = ConvTranspose <strides = [1, 176], dilations = [1048576, 2]> (x, w) }" % ", ".join(["1"] * 36),
    "g (float[1, 2, 50] x) => (float[a, b, c] y) <float[2, 2, 3] w = {%s}>"
    " { y = ConvTranspose <strides = [2], dilations = [33554432]> (x, w) }" % ", ".join(["1"] * 12),
    "g (float[1, 8, 2048, 575737800] x) => (float[a, b, c, d] y) <float[8] s = {1, 1, 1, 1, 1, 1, 1, 1}>"
    " { y = GroupNormalization <num_groups = 2> (x, s, s) }"])
def test_loading_takes_no_time_in_proportion_to_attributes_and_sizes(text: str) -> None:
    started = time.monotonic()
    tensorbox.Session(model(text), compile=False, keep_plans=False)
    assert time.monotonic() - started < 2
