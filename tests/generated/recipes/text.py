"""Strings."""

from __future__ import annotations

import numpy as np

from builder import Builder
from recipes import recipe


@recipe("StringConcat")
def string_concat(b: Builder) -> None:
    shape = b.shape()
    b.give(b.array(shape))
    b.give(b.array(b.pick(shape, (), tuple(1 if d else d for d in shape))))


@recipe("StringNormalizer")
def string_normalizer(b: Builder) -> None:
    b.give(b.array(b.pick((b.integer(1, 5),), (1, b.integer(1, 5)))))
    b.set(case_change_action=b.pick("LOWER", "UPPER", "NONE"), is_case_sensitive=b.integer(0, 1))
    b.maybe(stopwords=["a", "TENSOR", "bc"])


@recipe("StringSplit")
def string_split(b: Builder) -> None:
    shape = b.shape(1, 2, empty=0)
    texts = ["a b", "a,b,,c", "one", "x  y z", ",a"]
    b.give(np.array([b.pick(*texts) for _ in range(int(np.prod(shape)))], object).reshape(shape))
    b.maybe(delimiter=b.pick(",", " ", ""))
    b.maybe(maxsplit=b.integer(1, 3))


@recipe("RegexFullMatch")
def regex_full_match(b: Builder) -> None:
    b.give(b.array(b.shape()))
    b.set(pattern=b.pick("[a-z]+", ".*", "\\d+", "(a|bc)"))


@recipe("TfIdfVectorizer")
def tf_idf(b: Builder) -> None:
    count = b.integer(4, 10)
    texts = b.dtype("T").kind == "O"
    words = ["a", "b", "c", "d"]
    values = b.rng.integers(0, 4, b.pick((count,), (2, count)))
    b.give(np.vectorize(words.__getitem__, otypes=[object])(values) if texts else values)
    pool = [0, 1, 2, 3, 0, 1, 1, 2, 3, 0]
    if texts:
        b.set(pool_strings=[words[i] for i in pool])
    else:
        b.set(pool_int64s=pool)
    b.set(mode=b.pick("TF", "IDF", "TFIDF"), min_gram_length=b.integer(1, 2), max_gram_length=2,
          max_skip_count=b.integer(0, 2), ngram_counts=[0, 4], ngram_indexes=list(range(7)))
    b.maybe(weights=[b.real(0.5, 2) for _ in range(7)])


@recipe("ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer")
def of_map(b: Builder) -> None:
    kind = b.types["T1"]
    key, value = kind.removeprefix("map(").removesuffix(")").split(",", 1)
    names: list[object] = ["a", "b", "c", "d"] if key == "string" else [0, 1, 2, 3]
    chosen = [names[i] for i in sorted(b.rng.permutation(4)[: b.integer(1, 4)])]
    value = f"tensor({value.strip()})"
    values = b.array((len(chosen),), param=value)
    target = b.types["T2"]
    if b.schema.name == "CastMap":
        if values.dtype.kind == "O":
            values = np.array([str(b.integer(0, 9)) for _ in chosen], object)
        b.set(cast_to={"tensor(float)": "TO_FLOAT", "tensor(int64)": "TO_INT64", "tensor(string)": "TO_STRING"}[target])
        if key == "int64" and b.chance():
            b.set(map_form="SPARSE", max_map=6)
    else:
        b.types["T2"] = value
        b.set(**{"string_vocabulary" if key == "string" else "int64_vocabulary": names})
    b.give(dict(zip(chosen, values.tolist())), kind=kind)


@recipe("ai.onnx.ml.ZipMap")
def zip_map(b: Builder) -> None:
    classes = b.integer(1, 4)
    b.give(b.array((b.integer(1, 3), classes)), constant=False)
    if "string" in b.types["T"]:
        b.set(classlabels_strings=list("abcd")[:classes])
    else:
        b.set(classlabels_int64s=list(range(classes)))
