// The families of operators: one register function each, defined at the end of the family's file in onnx/,
// ml/ or microsoft/.
#pragma once

#include "lowering/op_registry.h"

namespace tbx::lowering {

void register_math(Registry& r);
void register_logical(Registry& r);
void register_activation(Registry& r);
void register_cast(Registry& r);
void register_quantize(Registry& r);
void register_quantized_products(Registry& r);
void register_qlinear(Registry& r);
void register_qlinear_pool(Registry& r);
void register_quantized_gemm(Registry& r);
void register_experimental(Registry& r);
void register_fused(Registry& r);
void register_nchwc(Registry& r);
void register_onnx_forms(Registry& r);
void register_is_all_finite(Registry& r);
void register_distances(Registry& r);
void register_fourier(Registry& r);
void register_murmur_hash(Registry& r);
void register_crop_and_resize(Registry& r);
void register_token_search(Registry& r);
void register_inverse(Registry& r);
void register_word_conv_embedding(Registry& r);
void register_reduce(Registry& r);
void register_softmax(Registry& r);
void register_norm(Registry& r);
void register_cumulative(Registry& r);
void register_creation(Registry& r);
void register_random(Registry& r);
void register_control(Registry& r);
void register_shape(Registry& r);
void register_indexing(Registry& r);
void register_matmul(Registry& r);
void register_integer_products(Registry& r);
void register_bodies(Registry& r);
void register_attention(Registry& r);
void register_onnx_attention(Registry& r);
void register_packed_attention(Registry& r);
void register_microsoft_attention(Registry& r);
void register_group_query_attention(Registry& r);
void register_sparse_attention(Registry& r);
void register_longformer_attention(Registry& r);
void register_positions(Registry& r);
void register_embed_layer_norm(Registry& r);
void register_group_norm(Registry& r);
void register_conv(Registry& r);
void register_pool(Registry& r);
void register_grid_sample(Registry& r);
void register_fold_image(Registry& r);
void register_regions(Registry& r);
void register_deform_conv(Registry& r);
void register_signal(Registry& r);
void register_causal_conv(Registry& r);
void register_hyper_connection(Registry& r);
void register_linear_attention(Registry& r);
void register_ngram_hash(Registry& r);
void register_matmul_bnb4(Registry& r);
void register_matmul_fpq4(Registry& r);
void register_matmul_nbits(Registry& r);
void register_moe(Registry& r);
void register_gather_quantized(Registry& r);
void register_recurrent(Registry& r);
void register_resize(Registry& r);
void register_select(Registry& r);
void register_sequence(Registry& r);
void register_ml_trees(Registry& r);
void register_ml_linear(Registry& r);
void register_ml_features(Registry& r);
void register_ml_svm(Registry& r);
void register_flex_attention(Registry& r);
void register_optimizers(Registry& r);
void register_derivative(Registry& r);
void register_tf_idf(Registry& r);
void register_image_decoder(Registry& r);
void register_ml_labels(Registry& r);

} // namespace tbx::lowering
