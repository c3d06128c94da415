"""Entries of SessionOptions' configuration, as ONNX Runtime names them: what becomes of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from ._core import UnsupportedError

EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
_FORMATS = ("session.load_model_format", "session.save_model_format")

# Those that change results, errors or files there: what is so here whatever they say. "0" and "" switch them off.
WITHOUT_EFFECT = {
    "session.set_denormal_as_zero": "denormal numbers are kept",
    "session.disable_quant_qdq": "integers are computed with wherever that gives what the model says",
    "session.disable_double_qdq_remover": "no rounding that the model asks for is left out",
    "session.enable_quant_qdq_cleanup": "no rounding that the model asks for is left out",
    "session.disable_qdq_constant_folding": "constants are folded where that gives what the model says",
    "session.qdqisint8allowed": "8-bit types are those of the model",
    "session.x64quantprecision": "integer products are exact",
    "session.enable_dq_matmulnbits_fusion": "products with dequantised weights give what the model says",
    "session.qdq_matmulnbits_accuracy_level": "activations of MatMulNBits are not rounded to 8 bits",
    "mlas.qnbit.force_fp32": "activations of MatMulNBits are not rounded to 8 bits",
    "optimization.enable_gelu_approximation": "Gelu is computed as the model says",
    "optimization.enable_cast_chain_elimination": "no rounding that the model asks for is left out",
    "optimization.minimal_build_optimizations": "models are written as ONNX, with all that was done",
    "optimization.disable_specified_optimizers": "passes have other names (disable_passes=)",
    "session.allow_released_opsets_only": "every opset that can be read is taken",
    "session.strict_shape_type_inference": "shapes that contradict each other are errors always",
    "session.disable_cpu_ep_fallback": "nothing falls back to the CPU in silence (docs/gpu.md)",
    "session.disable_model_compile": "models are compiled when the session is made",
    "session.compile_only": "sessions run what they compile",
    "session.optimized_model_external_initializers_file_name": "large constants lie in FILE.data",
    "session.optimized_model_external_initializers_min_size_in_bytes": "large constants lie in FILE.data",
    "session.save_external_prepacked_constant_initializers": "packed weights are in no file",
    "session.collect_node_memory_stats_to_file": "the file is not written (`tbx explain --profile`)",
    "session.node_partition_config_file": "the file is not read",
    "session.layer_assignment_settings": "a session has one device",
    "session.name_based_layer_assignment": "a session has one device",
    "session.max_shape_override": "shapes are those of the model and of dims=",
    "session.moe_expert_counter_state_file": "the file is not written",
    "session.enable_moe_expert_counting": "experts are not counted",
    "session.enable_moe_expert_statistics": "experts are not counted",
    "ep.context_enable": "compiled models are kept as packages (docs/packages.md)",
    "ep.context_file_path": "compiled models are kept as packages (docs/packages.md)",
}

WITHOUT_EFFECT |= {f"session.{field}": f"set the field {field} of SessionOptions" for field in (
    "enable_profiling", "graph_optimization_level", "intra_op_num_threads", "optimized_model_filepath")}

# Those that change neither results nor files: threads, memory and how ONNX Runtime goes about its work.
HINTS = frozenset({
    "session.disable_aot_function_inlining", "session.disable_prepacking", "session.dynamic_block_base",
    "session.enable_cpu_mem_arena", "session.enable_mem_pattern", "session.execution_mode",
    "session.inter_op_num_threads", "session.log_severity_level", "session.log_verbosity_level",
    "session.fail_on_suboptimal_compiled_model",
    "session.force_spinning_stop", "session.function_expansion_byte_limit", "session.function_expansion_node_limit",
    "session.gqa_value_layout", "session.graph_optimizations_loop_level", "session.log_id",
    "session.debug_layout_transformation", "session.enable_saved_runtime_optimizations",
    "session.moe_expert_counter_alpha", "session.moe_expert_counter_beta", "session.prepack.enable_parallel",
    "session.qdq_matmulnbits_block_size", "session.record_ep_graph_assignment_info",
    "session.resource_cuda_partitioning_settings", "session.strict_workspace_verification",
    "session.use_deterministic_compute", "session.use_device_allocator_for_initializers",
    "session.use_env_allocators", "session.use_external_initializer_file_buffers_directly",
    "session.use_ort_model_bytes_directly", "session.use_ort_model_bytes_for_initializers",
    "session.use_per_session_threads", "session.inter_op.allow_spinning", "session.inter_op.spin_backoff_max",
    "session.inter_op.spin_duration_us", "session.intra_op.allow_spinning", "session.intra_op.spin_backoff_max",
    "session.intra_op.spin_duration_us", "session.intra_op_thread_affinities",
    "memory.enable_memory_arena_shrinkage", "mlas.disable_kleidiai", "mlas.kleidiai.conv_igemm_max_work",
    "mlas.nchwc_depthwise_sliding", "mlas.nchwc_pointwise_conv_max_input_channel_batch", "mlas.use_lut_gemm",
    "optimization.constant_folding_max_output_size_in_bytes", "ep.context_embed_mode",
    "ep.context_model_external_initializers_file_name", "ep.enable_weightless",
    "ep.cuda.fpa_intb_gemm", "ep.cuda.fpa_intb_profile_m", "ep.cuda.gqa_workspace_max_total_sequence_length",
})

KNOWN = (EXTERNAL_DATA, *_FORMATS, *WITHOUT_EFFECT, *HINTS)


def check_entry(key: str, value: str) -> None:
    """UnsupportedError for what nothing here can give."""
    if key in _FORMATS and value.upper() not in ("", "ONNX"):
        how = "read" if key == _FORMATS[0] else "written"
        raise UnsupportedError(f"a model in the format {value} cannot be {how}; use the ONNX file")


def warn_of_entries(config: Mapping[str, str]) -> None:
    """Names what a program may count on in vain: entries that change results there, and those that nobody knows."""
    for key, value in config.items():
        check_entry(key, value)
        if key in WITHOUT_EFFECT and value not in ("", "0"):
            warnings.warn(f"the entry {key}={value} of SessionOptions has no effect: {WITHOUT_EFFECT[key]}",
                          UserWarning, stacklevel=4)
        elif key not in KNOWN:
            warnings.warn(f"the entry {key}={value} of SessionOptions is not known and has no effect", UserWarning,
                          stacklevel=4)
