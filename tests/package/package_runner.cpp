// Runs packages with the runtime library alone: values come from files and go to files, bit for bit.
//
//     tbx_package_runner < FOLDERS      one folder a line, each with model.tbx and in.0, in.1, ...: one
//     session
//                                       runs them in this order, with one thread and seed 7, to out.0, out.1,
//                                       ...
//
// Prints a line "ok" or "error <text>" for each folder. A file is what suite_packages.py packs: the number of
// values, then of each its name and the value. Numbers are little-endian, 64 bits; a text is its length and
// its bytes. A value is its kind (OnnxValue::Kind); a tensor its type, rank, dims and elements: texts, or
// bytes as they lie in memory; a sequence or map the number of its elements and these.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace {

constexpr int32_t kString = 8;

/// Bytes of an element; those of less than a byte have one each.
size_t width_of(int32_t type) {
  switch (type) {
  case 4:
  case 5:
  case 10:
  case 16: return 2; // uint16, int16, float16, bfloat16
  case 1:
  case 6:
  case 12: return 4; // float32, int32, uint32
  case 7:
  case 11:
  case 13:
  case 14: return 8;  // int64, float64, uint64, complex64
  case 15: return 16; // complex128
  default: return 1;
  }
}

size_t numel_of(const std::vector<int64_t>& dims) {
  size_t n = 1;
  for (int64_t d : dims) n *= static_cast<size_t>(d);
  return n;
}

class Reader {
public:
  explicit Reader(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + file);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }
  tbx::Session::Values values() {
    tbx::Session::Values all;
    for (int64_t n = number(); n > 0; --n) {
      std::string name = text();
      all.emplace_back(std::move(name), value());
    }
    return all;
  }

private:
  const char* take(size_t n) {
    if (n > bytes_.size() - at_) throw std::runtime_error("a file of values is cut");
    const char* p = bytes_.data() + at_;
    at_ += n;
    return p;
  }
  int64_t number() {
    int64_t n;
    std::memcpy(&n, take(sizeof n), sizeof n);
    return n;
  }
  std::string text() {
    const auto n = static_cast<size_t>(number());
    return {take(n), n};
  }
  tbx::OnnxValue value() {
    tbx::OnnxValue v;
    v.kind = static_cast<tbx::OnnxValue::Kind>(number());
    if (v.kind == tbx::OnnxValue::sequence || v.kind == tbx::OnnxValue::map)
      for (int64_t n = number(); n > 0; --n) v.elements.push_back(value());
    if (v.kind != tbx::OnnxValue::tensor) return v;
    v.type = static_cast<int32_t>(number());
    for (int64_t rank = number(); rank > 0; --rank) v.dims.push_back(number());
    const size_t n = numel_of(v.dims);
    if (v.type == kString) {
      std::vector<std::string> texts;
      for (size_t i = 0; i < n; ++i) texts.push_back(text());
      return tbx::OnnxValue::of_strings(std::move(texts), std::move(v.dims));
    }
    auto memory =
        std::make_shared<std::vector<std::max_align_t>>(n * width_of(v.type) / sizeof(std::max_align_t) + 1);
    if (n > 0) std::memcpy(memory->data(), take(n * width_of(v.type)), n * width_of(v.type));
    v.data = memory->data();
    v.owner = std::move(memory);
    return v;
  }

  std::vector<char> bytes_;
  size_t at_ = 0;
};

class Writer {
public:
  explicit Writer(const std::string& file) : out_(file, std::ios::binary) {}
  void values(const tbx::Session::Values& all) {
    number(static_cast<int64_t>(all.size()));
    for (const auto& [name, v] : all) {
      text(name);
      value(v);
    }
    if (!out_.flush()) throw std::runtime_error("cannot write the outputs");
  }

private:
  void number(int64_t n) { out_.write(reinterpret_cast<const char*>(&n), sizeof n); }
  void text(const std::string& s) {
    number(static_cast<int64_t>(s.size()));
    out_ << s;
  }
  void value(const tbx::OnnxValue& v) {
    number(v.kind);
    if (v.kind == tbx::OnnxValue::sequence || v.kind == tbx::OnnxValue::map) {
      number(static_cast<int64_t>(v.elements.size()));
      for (const tbx::OnnxValue& element : v.elements) value(element);
    }
    if (v.kind != tbx::OnnxValue::tensor) return;
    number(v.type);
    number(static_cast<int64_t>(v.dims.size()));
    for (int64_t d : v.dims) number(d);
    if (v.type == kString)
      for (const std::string& s : *v.strings) text(s);
    else if (const size_t bytes = numel_of(v.dims) * width_of(v.type))
      out_.write(static_cast<const char*>(v.data), static_cast<std::streamsize>(bytes));
  }

  std::ofstream out_;
};

void run(const std::string& folder) {
  tbx::LoadOptions options;
  options.threads = 1;
  options.seed = 7;
  const tbx::Session session = tbx::Session::load(folder + "/model.tbx", options).value();
  for (int n = 0;; ++n) {
    const std::string number = "." + std::to_string(n);
    if (!std::ifstream(folder + "/in" + number)) return;
    const tbx::Session::Values inputs = Reader(folder + "/in" + number).values();
    Writer(folder + "/out" + number).values(session.run_values(inputs).value());
  }
}

} // namespace

int main() {
  for (std::string folder; std::getline(std::cin, folder);) {
    std::string answer = "ok";
    try {
      run(folder);
    } catch (const std::exception& e) {
      answer = std::string("error ") + e.what();
    }
    for (char& c : answer)
      if (c == '\n') c = ' ';
    std::cout << answer << std::endl; // at once: the next folder may end the process
  }
}
