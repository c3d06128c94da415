"""Execution providers with ONNX Runtime's names: what of them tensorbox has, and their options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ._core import UnsupportedError, device_problem

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_OURS = (CUDA, CPU, "TensorboxExecutionProvider")

# Options of the CUDA provider that are hints about ONNX Runtime's insides: a warning names those that are given.
_HINTS = frozenset({
    "arena_extend_strategy", "cudnn_conv1d_pad_to_nc1d", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace",
    "do_copy_in_default_stream", "enable_cuda_graph", "enable_skip_layer_norm_strict_mode", "fuse_conv_bias",
    "gpu_mem_limit", "prefer_nhwc", "sdpa_kernel", "tunable_op_enable", "tunable_op_max_tuning_duration_ms",
    "tunable_op_tuning_enable", "use_ep_level_unified_stream"})
_DONE = frozenset({"device_id", "has_user_compute_stream", "user_compute_stream", "use_tf32"})
_REFUSED = frozenset({"gpu_external_alloc", "gpu_external_empty_cache", "gpu_external_free"})


def available() -> list[str]:
    return [CPU] if device_problem("cuda") else [CUDA, CPU]


def checked_provider(name: str, options: Any = None) -> tuple[str, dict[str, Any]]:
    """ValueError where tensorbox does not have it, or it has no such option."""
    if name not in _OURS:
        raise ValueError(f"provider '{name}' is not available; available: {available()}")
    given = dict(options or {})
    if name == CUDA:
        _check_cuda_options(given)
    return name, given


def chosen_provider(providers: Sequence[Any] | None, provider_options: Sequence[Any] | None) -> tuple[str, dict[str, Any]]:
    """The first of the list that is there, with its options. Those that are not are left out with a warning where another
    is there, and are a ValueError where none is."""
    if isinstance(providers, str):
        raise ValueError(f"providers is a list of names, not one name: [{providers!r}]")
    given = list(providers or [])
    if not given:
        return CPU, {}
    if provider_options is not None and len(provider_options) != len(given):
        raise ValueError(f"{len(given)} providers and {len(provider_options)} provider_options are given")
    pairs = [p if isinstance(p, tuple) else (p, {}) for p in given]
    if provider_options is not None:
        if any(options for _, options in pairs):
            raise ValueError("options are given with providers and as provider_options: one of the two")
        pairs = [(name, options) for (name, _), options in zip(pairs, provider_options, strict=True)]
    missing: dict[str, str] = {}
    found: tuple[str, dict[str, Any]] | None = None
    for name, options in pairs:
        why = _problem(name, options)
        if why is not None:
            missing[name] = why
        elif found is None:
            found = checked_provider(name, options)
    if missing:
        names = list(missing)
        said = (f"provider '{names[0]}' is not available" if len(names) == 1 else
                f"the providers {names} are not available") + f"; available: {available()}"
        said += "".join(f"; {name}: {why}" for name, why in missing.items() if why)
        if found is None:
            raise ValueError(said)
        warnings.warn(said, UserWarning, stacklevel=4)
    assert found is not None
    return found


def _problem(name: str, options: Mapping[str, Any]) -> str | None:
    """Why a provider is not there; "" where there is nothing to say beyond that, None where it is."""
    if name not in _OURS:
        return ""
    return device_problem(device_of(options)) or None if name == CUDA else None


def device_of(options: Mapping[str, Any]) -> str:
    return f"cuda:{int(options.get('device_id', 0))}"


def stream_of(options: Mapping[str, Any]) -> int | None:
    """The stream that the caller wants runs to be work of."""
    stream = options.get("user_compute_stream")
    return None if stream in (None, "") else int(stream)


def precision_of(options: Mapping[str, Any]) -> str:
    """TF32 is for those who ask for it; float32 is strict where ONNX Runtime's default is TF32."""
    return "strict" if str(options.get("use_tf32", "0")) in ("0", "False") else "tf32"


def _check_cuda_options(options: Mapping[str, Any]) -> None:
    unknown = [name for name in options if name not in _HINTS | _DONE | _REFUSED]
    if unknown:
        raise ValueError(f"{CUDA} has no option '{unknown[0]}'; it has {sorted(_HINTS | _DONE)}")
    refused = [name for name in options if name in _REFUSED]
    if refused:
        raise UnsupportedError(f"{CUDA}: option {refused[0]}: memory of the GPU is allocated by "
                               "tensorbox itself; leave the option out")
    if hints := [name for name in options if name in _HINTS]:
        warnings.warn(f"{CUDA}: these options have no effect: {', '.join(hints)}", UserWarning, stacklevel=6)
