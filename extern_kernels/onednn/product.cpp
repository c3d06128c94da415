#include "extern_kernels/onednn/product.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "extern_kernels/threads.h"

namespace tbx::extern_kernels::onednn {

using dnnl::memory;

namespace {

/// The algorithm and the parameters that `append` gives an operation.
struct Work {
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
  float alpha = 0, beta = 0;
};

Work work_of(const PostOp& op, const std::function<memory::desc(int)>& operand) {
  dnnl::post_ops one;
  append(one, op, operand);
  Work w;
  if (op.operand >= 0) {
    memory::desc unused;
    one.get_params_binary(0, w.algorithm, unused);
  } else {
    one.get_params_eltwise(0, w.algorithm, w.alpha, w.beta);
  }
  return w;
}

dnnl::primitive_attr with(const dnnl::post_ops& ops) {
  dnnl::primitive_attr attr = attributes(Precision::strict);
  attr.set_post_ops(ops);
  return attr;
}

Stage reorder_stage(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc pd(cpu_engine(), from, cpu_engine(), to, attributes(Precision::strict));
  Stage stage;
  stage.primitive = std::make_shared<const Primitive>(
      Primitive{pd, dnnl::reorder(pd), {std::string("copy by ") + pd.impl_info_str(), false, {}}});
  return stage;
}

} // namespace

dnnl::primitive made_apart(const dnnl::primitive_desc_base& descriptor,
                           const std::function<dnnl::primitive()>& make) {
  size_t largest = 0;
  for (auto what : {dnnl::query::src_md, dnnl::query::weights_md, dnnl::query::dst_md})
    largest = std::max(largest, descriptor.query_md(what).get_size());
  if (largest < size_t{1} << 31) return make();
  const int threads = tbb::this_task_arena::max_concurrency(); // the library lays out work for them
  dnnl::primitive made;
  std::exception_ptr error;
  std::thread([&] {
    try {
      made = as_with_threads(threads, make);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return made;
}

std::optional<std::vector<Stage>> stages_beside(const memory::desc& result, std::optional<int> bias,
                                                std::span<const PostOp> ops,
                                                const std::function<memory::desc(int)>& operand) {
  std::vector<PostOp> all;
  if (bias) all.push_back({PostOp::add, 0, 0, *bias});
  all.insert(all.end(), ops.begin(), ops.end());
  std::vector<Stage> stages;
  for (size_t i = 0; i < all.size();) {
    const PostOp& head = all[i++];
    if (head.kind == PostOp::sum) return std::nullopt;
    Stage stage;
    const Work work = work_of(head, operand);
    Primitive made;
    if (head.operand >= 0) {
      // The operations after it, as many as there are, go along in one pass.
      dnnl::post_ops rest;
      for (; i < all.size() && all[i].kind != PostOp::sum; ++i) {
        append(rest, all[i], operand);
        if (all[i].operand >= 0)
          stage.arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(rest.len() - 1) | DNNL_ARG_SRC_1,
                                     operand(all[i].operand), all[i].operand});
      }
      stage.arguments.push_back({DNNL_ARG_SRC_0, result, -1, 0});
      stage.arguments.push_back({DNNL_ARG_SRC_1, operand(head.operand), head.operand});
      made = make_primitive(dnnl::binary::primitive_desc(cpu_engine(), work.algorithm, result,
                                                         operand(head.operand), result, with(rest)),
                            {dnnl::primitive::kind::binary, false, rest.len() > 0, {}, {}});
    } else {
      stage.arguments.push_back({DNNL_ARG_SRC, result, -1, 0});
      made = make_primitive(dnnl::eltwise_forward::primitive_desc(
                                cpu_engine(), dnnl::prop_kind::forward_inference, work.algorithm, result,
                                result, work.alpha, work.beta, with({})),
                            {dnnl::primitive::kind::eltwise, false, false, {}, {}});
    }
    if (!is_fast(made)) return std::nullopt;
    stage.primitive = std::make_shared<const Primitive>(std::move(made));
    stage.arguments.push_back({DNNL_ARG_DST, result, -1, 0});
    stages.push_back(std::move(stage));
  }
  return stages;
}

Stage copy_stage(int input, const memory::desc& from, const memory::desc& to, int own) {
  Stage stage = reorder_stage(from, to);
  stage.arguments = {{DNNL_ARG_FROM, from, input}, {DNNL_ARG_TO, to, -1, own < 0 ? 0 : -1, nullptr, own}};
  return stage;
}

Stage copy_back_stage(int own, const memory::desc& from, const memory::desc& to) {
  Stage stage = reorder_stage(from, to);
  stage.arguments = {{DNNL_ARG_FROM, from, -1, -1, nullptr, own}, {DNNL_ARG_TO, to, -1, 0}};
  return stage;
}

} // namespace tbx::extern_kernels::onednn
