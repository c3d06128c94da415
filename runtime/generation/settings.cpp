#include "runtime/generation/settings.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kMaxLength = 4096; ///< of a sequence, as in ONNX Runtime
constexpr int64_t kMaxBeams = 128;   ///< the same

/// Where the inputs stand.
struct Places {
  int beams = -1, returned = -1, length_penalty = -1;
  int max_length = 1, min_length = 2;
  int repetition = 3, vocabulary_mask = 4, first_mask = 5, attention_mask = 6;
  int presence_mask = -1, seed = -1, decoder_input = -1, processor = -1, temperature = -1;
};

Places places_of(const Generation& g) {
  Places p;
  if (g.search == Search::sampling) {
    p.presence_mask = 7;
    p.seed = 8;
  }
  if (g.search != Search::beams) return p;
  p.beams = 3;
  p.returned = 4;
  p.length_penalty = 5;
  p.repetition = 6;
  p.vocabulary_mask = 7;
  p.first_mask = 8;
  p.attention_mask = 9;
  if (g.family == Family::whisper) {
    p.decoder_input = 10;
    p.processor = 11;
    p.temperature = 14;
  }
  return p;
}

class Inputs {
public:
  Inputs(const ValueStep& step, const ValueFrame& frame) : step_(step), frame_(frame) {}

  const Tensor* tensor(int i, const char* name) const {
    if (i < 0 || static_cast<size_t>(i) >= step_.inputs.size() || step_.inputs[i] < 0) return nullptr;
    const RuntimeValue& v = frame_.slots[step_.inputs[i]];
    TBX_MODEL(v.is_tensor(), "input '{}' is {}, not a tensor", name, name_of(v.kind));
    return &v.tensor;
  }

  /// Of type int32 and this rank.
  const Tensor* integers(int i, const char* name, size_t rank) const {
    const Tensor* t = tensor(i, name);
    if (!t) return nullptr;
    TBX_MODEL(t->dtype == DType::i32, "input '{}' is of type {}, expected int32", name, name_of(t->dtype));
    TBX_MODEL(t->dims.size() == rank, "input '{}' has the shape [{}], expected rank {}", name,
              fmt::join(t->dims, ", "), rank);
    return t;
  }

  const Tensor* one(int i, const char* name) const {
    const Tensor* t = tensor(i, name);
    TBX_MODEL(!t || t->numel() == 1, "input '{}' has the shape [{}], expected one number", name,
              fmt::join(t ? t->dims : std::vector<int64_t>(), ", "));
    return t;
  }

  int64_t integer(int i, const char* name, int64_t otherwise) const {
    const Tensor* t = one(i, name);
    if (!t) return otherwise;
    TBX_MODEL(is_integer(t->dtype), "input '{}' is of type {}, expected an integer", name, name_of(t->dtype));
    return element_as_int(*t, 0);
  }

  int64_t required(int i, const char* name) const {
    TBX_MODEL(one(i, name), "input '{}' is missing", name);
    return integer(i, name, 0);
  }

  float real(int i, const char* name, float otherwise) const {
    const Tensor* t = one(i, name);
    return t ? static_cast<float>(element_as_double(*t, 0)) : otherwise;
  }

private:
  const ValueStep& step_;
  const ValueFrame& frame_;
};

void check_batch(const Tensor* t, const char* name, int64_t batch) {
  TBX_MODEL(!t || t->dims[0] == batch, "input '{}' has the shape [{}], expected a batch of {}", name,
            fmt::join(t ? t->dims : std::vector<int64_t>(), ", "), batch);
}

void read_prompt(const Generation& g, const Places& at, const Inputs& in, Settings& s) {
  if (g.family != Family::whisper) {
    s.input = in.integers(0, "input_ids", 2);
    TBX_MODEL(s.input, "input 'input_ids' is missing");
    s.batch = s.input->dims[0];
    s.prompt = g.family == Family::gpt ? s.input->dims[1] : 1;
    return;
  }
  s.input = in.tensor(0, "input_ids");
  TBX_MODEL(s.input, "input 'input_ids' is missing");
  TBX_MODEL(s.input->dims.size() == 3, "input 'input_ids' has the shape [{}], expected features of rank 3",
            fmt::join(s.input->dims, ", "));
  s.batch = s.input->dims[0];
  s.decoder_input = in.integers(at.decoder_input, "decoder_input_ids", 2);
  check_batch(s.decoder_input, "decoder_input_ids", s.batch);
  s.prompt = s.decoder_input ? s.decoder_input->dims[1] : 1;
  TBX_MODEL(s.decoder_input || g.start >= 0,
            "neither input 'decoder_input_ids' nor attribute 'decoder_start_token_id' is given");
}

} // namespace

Settings read_settings(const Generation& g, const ValueStep& step, const ValueFrame& frame) {
  const Places at = places_of(g);
  const Inputs in(step, frame);
  Settings s;
  read_prompt(g, at, in, s);
  TBX_MODEL(s.prompt > 0, "there is no token to start with");
  s.max_length = in.required(at.max_length, "max_length");
  TBX_MODEL(s.max_length > s.prompt && s.max_length <= kMaxLength,
            "input 'max_length' is {}, expected more than the {} tokens at the start and at most {}",
            s.max_length, s.prompt, kMaxLength);
  s.min_length = in.integer(at.min_length, "min_length", 0);
  TBX_MODEL(s.min_length < s.max_length,
            "input 'min_length' is {}, expected less than the {} of 'max_length'", s.min_length,
            s.max_length);
  if (g.search == Search::beams) {
    s.beams = in.required(at.beams, "num_beams");
    TBX_MODEL(s.beams >= 1 && s.beams <= kMaxBeams, "input 'num_beams' is {}, expected 1 to {}", s.beams,
              kMaxBeams);
    s.returned = in.required(at.returned, "num_return_sequences");
    TBX_MODEL(s.returned >= 1 && s.returned <= s.beams,
              "input 'num_return_sequences' is {}, expected 1 to the {} of 'num_beams'", s.returned, s.beams);
  }
  s.length_penalty = in.real(at.length_penalty, "length_penalty", 1);
  s.repetition_penalty = in.real(at.repetition, "repetition_penalty", 1);
  TBX_MODEL(s.repetition_penalty > 0, "input 'repetition_penalty' is {}, expected more than 0",
            s.repetition_penalty);
  s.temperature = in.real(at.temperature, "temperature", g.temperature);
  s.timestamps = in.integer(at.processor, "logits_processor", 0) == 1;
  s.seed = static_cast<uint32_t>(in.integer(at.seed, "seed", 0));
  s.vocabulary_mask = in.integers(at.vocabulary_mask, "vocab_mask", 1);
  s.first_mask = in.integers(at.first_mask, "prefix_vocab_mask", 2);
  check_batch(s.first_mask, "prefix_vocab_mask", s.batch);
  s.presence_mask = in.integers(at.presence_mask, "presence_mask", 2);
  check_batch(s.presence_mask, "presence_mask", s.batch);
  if (g.family == Family::whisper) return s; // features have no padding
  s.attention_mask = in.integers(at.attention_mask, "attention_mask", 2);
  TBX_MODEL(!s.attention_mask || s.attention_mask->dims == s.input->dims,
            "input 'attention_mask' has another shape than 'input_ids'");
  return s;
}

} // namespace tbx::runtime
