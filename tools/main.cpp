// tbx: the command line of tensorbox.
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <numeric>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/common.h"
#include "tools/interrupt.h"
#include "tools/say.h"

namespace {

/// A word where a command was expected, or empty.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  bool none = app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
  return none ? argv[1] : "";
}

/// How many letters must be added, left out or changed to make one word of the other.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t before = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = before + (a[i] != b[j]);
      before = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, before + 1, changed});
    }
  }
  return row.back();
}

/// An option that may be meant by a word, or empty.
std::string like(const CLI::App& command, std::string_view word) {
  std::string found;
  size_t least = 3;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      if (size_t n = edits(word.substr(0, word.find('=')), "--" + name); n < least)
        least = n, found = "--" + name;
  return found;
}

/// What is wrong: an option that there is not comes before all that it may have kept from being there.
std::string fault(const CLI::App& app, const CLI::App& command, const CLI::Error& error) {
  for (const std::string& word : app.remaining(true))
    if (word.size() > 1 && word[0] == '-') {
      const std::string meant = like(command, word);
      return fmt::format("there is no option {}{}", word, meant.empty() ? "" : "; is it " + meant + "?");
    }
  return error.what();
}

/// What stderr says of a command line that cannot be: whose it is, what is wrong, where the options are
/// listed.
std::string wrong_usage(const CLI::App* app, const CLI::Error& error) {
  const CLI::App& command = app->get_subcommands().empty() ? *app : *app->get_subcommands().front();
  std::string name = app->get_name();
  if (&command != app) name += " " + command.get_name();
  return fmt::format("{}: {} (`{} --help` lists what there is)\n", name,
                     tbx::tools::name_text(fault(*app, command, error)), name);
}

/// What there is to choose from.
std::string commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Errors end here: a message on stderr, and the exit code.
int parse(CLI::App& app, int argc, char** argv, const int& code) {
  using namespace tbx::tools;
  try {
    app.parse(argc, argv);
    return code;
  } catch (const CLI::ParseError& e) {
    if (std::string word = unknown_command(app, argc, argv); !word.empty()) {
      if (word == "help") {
        say("{}", app.help());
        return kOk;
      }
      say(stderr, "tbx: there is no command '{}'; the commands are: {}\n", name_text(word), commands_of(app));
      return kUsage;
    }
    if (argc < 2) {
      say(stderr, "tbx: a command is required: {} (`tbx --help` says what they do)\n", commands_of(app));
      return kUsage;
    }
    return app.exit(e) == 0 ? kOk : kUsage;
  } catch (const tbx::Exception& e) {
    say(stderr, "{}\n", e.failure.message);
    return exit_code(e.failure);
  } catch (const tbx::Error& e) { // of a stage called without a session
    say(stderr, "{}\n", e.what());
    return exit_code(tbx::Failure{static_cast<tbx::Failure::Kind>(e.kind()), {}});
  } catch (const UsageError& e) {
    say(stderr, "tbx: {}\n", name_text(e.what())); // one line, whatever it names
    return kUsage;
  } catch (const std::bad_alloc&) {
    say(stderr, "tbx: out of memory; choose smaller sizes with --dim\n");
    return kModelError;
  } catch (const std::exception& e) {
    if (std::ferror(stdout)) return kOk; // what it is about; main says so
    say(stderr, "InternalError: {}\n", e.what());
    return kInternal;
  }
}

int run(int argc, char** argv) {
  using namespace tbx::tools;
  CLI::App app{"tbx: compile, run, measure and explain ONNX models", "tbx"};
  app.footer(R"(Examples:
  tbx run model.onnx --input image=cat.png --save out.npz
  tbx bench model.onnx --dim batch=8 --threads 2
  tbx compile model.onnx -o model.tbx         one file that runs without a compiler
  tbx optimize model.onnx small.onnx          a simplified file for any runtime
  tbx explain model.onnx --profile            which kernels, made from which nodes, why, how long
  tbx dump model.onnx --stage schedule        the model after a stage of the compiler
  tbx compare model.onnx                      against plain loops, value by value
  tbx compare model.onnx other.onnx           where two models first differ
  tbx ops                                     the operators that can be run
  tbx doctor                                  compiler, GPU and libraries: what is here, what is missing
`tbx COMMAND --help` has the options and more examples of each command.

Exit codes: 0 done, 1 outputs differ (compare, demo), 2 wrong usage, or a file of inputs or outputs cannot be read or
written, 3 ModelError (the model or an input is wrong), 4 UnsupportedError (valid ONNX, not handled yet), 5 BackendError
(compiler or library; a package or an optimized model cannot be written), 6 InternalError (our defect). Errors and
notes go to stderr; with --json stdout holds one JSON value, or nothing after an error.
Environment: TBX_ISA (avx512, avx2, sse), TBX_CACHE_DIR, TBX_CACHE_LIMIT (bytes, or 512mb, 2gb; default: 1gb; 0: none),
TBX_CACHE_PLANS (0: as --no-kept-plans), TBX_CXX (the C++ compiler), TBX_CXXFLAGS (options added to its own),
OMP_NUM_THREADS, TBX_CUDA_PATH (folder of NVIDIA libraries), TBX_CUDA_MEASURE (0: their first choice of algorithm),
TBX_CUDA_FORKS (1: independent steps side by side), TBX_FAKE_CUDA (1: --device cuda is a device that runs on the CPU).)");
  app.set_version_flag("--version", tbx::version());
  app.require_subcommand(1);
  app.failure_message(wrong_usage);
  int code = kOk;
  char help[] = "--help";
  if (argc == 3 && std::string_view(argv[1]) == "help") argv[1] = argv[2], argv[2] = help;
  add_run(app, code);
  add_compile(app, code);
  add_optimize(app, code);
  add_bench(app, code);
  add_explain(app, code);
  add_dump(app, code);
  add_compare(app, code);
  add_ops(app, code);
  add_doctor(app, code);
  add_demo(app, code);
  code = parse(app, argc, argv, code);
  // A full disk or a closed pipe must not look like success.
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout) {
    say(stderr, "tbx: stdout cannot be written\n");
    return kUsage;
  }
  return code;
}

/// Libraries need memory where nothing may be thrown: JSON values and options in their destructors. Without
/// any the process ends here, and says why.
[[noreturn]] void end_without_memory() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (!type || *type != typeid(std::bad_alloc)) std::abort();
  constexpr std::string_view text = "tbx: out of memory\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) std::abort();
  std::_Exit(tbx::tools::kModelError);
}

} // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_without_memory);
  tbx::tools::open_standard_files();
  tbx::tools::handle_signals();
  int code = tbx::tools::kModelError;
  try {
    code = run(argc, argv);
  } catch (const std::bad_alloc&) { // before there is a command that could say more
    std::fputs("tbx: out of memory\n", stderr);
  }
  tbx::tools::end_by_signal();
  return code;
}
