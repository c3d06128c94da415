"""Protobuf's wire format: fields of a message read where they lie, and written, without the package onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a message: its number and where it lies, from its key on. What has a length begins and ends behind that;
    of a number `value` is it, of others with a fixed width (float, double) it is 0."""

    number: int
    key: int
    begin: int
    end: int
    has_length: bool
    value: int = 0


def fields(data: memoryview, at: int, end: int) -> Iterator[Field]:
    """The fields of the message data[at:end]. ValueError where it is none."""
    while at < end:
        start = at
        key, at = _read_varint(data, at)
        kind, value = key & 7, 0
        if kind == 2:
            length, at = _read_varint(data, at)
            begin, at = at, at + length
        elif kind == 0:
            begin = at
            value, at = _read_varint(data, at)
        else:
            begin, at = at, at + (8 if kind == 1 else 4)
        if at > end:
            raise ValueError(f"field {key >> 3} at byte {start} ends behind its message")
        yield Field(key >> 3, start, begin, at, kind == 2, value)


def parts(data: memoryview, at: int, end: int) -> Iterator[Field]:
    """The fields that have a length: texts, bytes, messages."""
    return (field for field in fields(data, at, end) if field.has_length)


def text(data: memoryview, field: Field) -> str:
    """A name, which may be any bytes."""
    return bytes(data[field.begin:field.end]).decode("utf-8", "surrogateescape")


def integers(data: memoryview, field: Field) -> list[int]:
    """Of a repeated integer, whether packed or one at a time; at least 0."""
    if not field.has_length:
        return [field.value]
    values, at = [], field.begin
    while at < field.end:
        value, at = _read_varint(data, at)
        values.append(value)
    return values


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at == len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"no number ends at byte {at}")


def message(values: Mapping[int, int | str | bytes]) -> bytes:
    """A message with these fields by their numbers."""
    return b"".join(written(number, value) for number, value in values.items())


def written(number: int, value: int | str | bytes) -> bytes:
    """One field: an integer of at least 0, or what has a length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return head(number, len(data)) + data


def head(number: int, length: int) -> bytes:
    """What stands before the bytes of a field that has a length."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
