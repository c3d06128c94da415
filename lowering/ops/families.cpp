// Fills the registry: one line per family.
#include "lowering/ops/families.h"

namespace tbx::lowering {

void register_all_ops(Registry& r) {
  register_math(r);
  register_logical(r);
  register_activation(r);
  register_cast(r);
  register_quantize(r);
  register_integer_products(r);
  register_quantized_products(r);
  register_qlinear(r);
  register_qlinear_pool(r);
  register_quantized_gemm(r);
  register_experimental(r);
  register_fused(r);
  register_nchwc(r);
  register_onnx_forms(r);
  register_is_all_finite(r);
  register_distances(r);
  register_fourier(r);
  register_murmur_hash(r);
  register_crop_and_resize(r);
  register_token_search(r);
  register_inverse(r);
  register_word_conv_embedding(r);
  register_reduce(r);
  register_softmax(r);
  register_norm(r);
  register_cumulative(r);
  register_creation(r);
  register_random(r);
  register_control(r);
  register_shape(r);
  register_indexing(r);
  register_matmul(r);
  register_bodies(r);
  register_attention(r);
  register_onnx_attention(r);
  register_packed_attention(r);
  register_microsoft_attention(r);
  register_group_query_attention(r);
  register_sparse_attention(r);
  register_longformer_attention(r);
  register_positions(r);
  register_embed_layer_norm(r);
  register_group_norm(r);
  register_conv(r);
  register_pool(r);
  register_grid_sample(r);
  register_fold_image(r);
  register_regions(r);
  register_deform_conv(r);
  register_signal(r);
  register_causal_conv(r);
  register_hyper_connection(r);
  register_linear_attention(r);
  register_ngram_hash(r);
  register_matmul_bnb4(r);
  register_matmul_fpq4(r);
  register_matmul_nbits(r);
  register_moe(r);
  register_gather_quantized(r);
  register_recurrent(r);
  register_resize(r);
  register_select(r);
  register_sequence(r);
  register_ml_trees(r);
  register_ml_linear(r);
  register_ml_features(r);
  register_ml_svm(r);
  register_flex_attention(r);
  register_optimizers(r);
  register_derivative(r);
  register_tf_idf(r);
  register_image_decoder(r);
  register_ml_labels(r);
}

} // namespace tbx::lowering
