// The kernel cache and the compiler process: hits, many builders at once, damage, bad permissions, no
// compiler.
#include "codegen/build_module.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "../support/temporary_folder.h"
#include "base/budget.h"
#include "base/error.h"
#include "codegen/compiler.h"
#include "codegen/kernel_cache.h"
#include "codegen/prelude.h"

namespace tbx::test {
namespace {

namespace fs = std::filesystem;
using codegen::EmittedKernel;

EmittedKernel kernel(const std::string& name, int result) {
  EmittedKernel k;
  k.function = name;
  k.text = fmt::format("extern \"C\" i64 {}(void* const*, const i64*, i64, i64, void*) {{ return {}; }}\n",
                       name, result);
  return k;
}

class BuildModule : public testing::Test {
protected:
  void SetUp() override {
    if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
    folder_ = temporary_folder("tbx-cache");
    toolchain_.cache_dir = folder_ / "kernels";
    toolchain_.jobs = 2;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  int64_t run(const codegen::Module& m, const std::string& name) {
    return m.find(name)(nullptr, nullptr, 0, 0, nullptr);
  }
  std::string message(const std::vector<EmittedKernel>& kernels) {
    try {
      codegen::build_module(kernels, Isa::sse, toolchain_);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::backend);
      return e.message();
    }
    return "";
  }
  std::string full_message(const std::vector<EmittedKernel>& kernels) {
    try {
      codegen::build_module(kernels, Isa::sse, toolchain_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  /// A shell script that stands for a compiler.
  std::string write_compiler(const std::string& script) {
    const fs::path path = folder_ / fmt::format("compiler{}", compilers_++);
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms(0755));
    return path.string();
  }
  int files(const std::string& part) {
    int n = 0;
    for (auto& f : fs::directory_iterator(toolchain_.cache_dir))
      n += f.path().filename().string().find(part) != std::string::npos;
    return n;
  }

  fs::path folder_;
  int compilers_ = 0;
  codegen::Toolchain toolchain_;
};

TEST_F(BuildModule, CompilesOnceThenHitsTheCache) {
  auto first = codegen::build_module({kernel("k_one", 1), kernel("k_two", 2), kernel("k_one", 1)}, Isa::sse,
                                     toolchain_);
  EXPECT_EQ(first->compiled, 1);
  EXPECT_EQ(run(*first, "k_one"), 1);
  EXPECT_EQ(run(*first, "k_two"), 2);
  // In another order, in another session.
  auto second = codegen::build_module({kernel("k_two", 2), kernel("k_one", 1)}, Isa::sse, toolchain_);
  EXPECT_EQ(second->compiled, 0);
  EXPECT_EQ(second->cached, 1);
  EXPECT_EQ(run(*second, "k_two"), 2);
  EXPECT_THROW(second->find("k_three"), Error);
  auto changed = codegen::build_module({kernel("k_one", 7), kernel("k_two", 2)}, Isa::sse, toolchain_);
  EXPECT_EQ(changed->compiled, 1);
  EXPECT_EQ(run(*changed, "k_one"), 7);
  EXPECT_EQ(files(".tmp"), 0);
  struct stat st {};
  ASSERT_EQ(stat(toolchain_.cache_dir.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST(Prelude, HasANumberForEachInstructionSet) {
  EXPECT_EQ(codegen::prelude_hash(Isa::avx2), codegen::prelude_hash(Isa::avx2));
  EXPECT_NE(codegen::prelude_hash(Isa::avx2), codegen::prelude_hash(Isa::avx512));
  EXPECT_NE(codegen::prelude_hash(Isa::avx2), codegen::prelude_hash(Isa::sse));
}

TEST_F(BuildModule, ReportsProgressOverUnits) {
  std::vector<EmittedKernel> kernels;
  for (int i = 0; i < 20; ++i) kernels.push_back(kernel(fmt::format("k_{}", i), i));
  std::vector<int> seen;
  int of = 0;
  auto m = codegen::build_module(kernels, Isa::sse, toolchain_,
                                 [&](int done, int total) { seen.push_back(done), of = total; });
  EXPECT_GT(of, 1);
  ASSERT_EQ(static_cast<int>(seen.size()), of + 1);
  for (int i = 0; i <= of; ++i) EXPECT_EQ(seen[i], i);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run(*m, fmt::format("k_{}", i)), i);
}

TEST_F(BuildModule, TheLongestUnitIsCompiledFirst) {
  const std::string log = (folder_ / "sizes").string();
  toolchain_.compiler =
      write_compiler(fmt::format("for a in \"$@\"; do case \"$a\" in *.cpp) wc -c < \"$a\" >> '{}' ;; "
                                 "esac; done; exec '{}' \"$@\"",
                                 log, codegen::find_compiler(toolchain_)));
  toolchain_.jobs = 1;
  std::vector<EmittedKernel> kernels;
  for (int i = 0; i < 12; ++i) {
    kernels.push_back(kernel(fmt::format("k_{:02}", i), i));
    kernels.back().text += "//" + std::string(i < 4 ? 10 : i < 8 ? 2000 : 500, 'x') + "\n";
  }
  auto m = codegen::build_module(kernels, Isa::sse, toolchain_);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(run(*m, fmt::format("k_{:02}", i)), i);
  std::vector<int> sizes;
  std::ifstream in(log);
  for (int size; in >> size;) sizes.push_back(size);
  EXPECT_EQ(sizes.size(), 3u);
  EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST_F(BuildModule, ManyBuildersAtOnce) {
  std::vector<EmittedKernel> kernels;
  for (int i = 0; i < 6; ++i) kernels.push_back(kernel(fmt::format("k_{}", i), i));
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool ok = false;
      try {
        auto m = codegen::build_module(kernels, Isa::sse, toolchain_);
        ok = run(*m, "k_5") == 5;
      } catch (const Error&) {
      }
      _exit(ok ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back(
        [&] { EXPECT_EQ(run(*codegen::build_module(kernels, Isa::sse, toolchain_), "k_3"), 3); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(files(".tmp"), 0);
}

TEST_F(BuildModule, DamagedEntriesAreBuiltAgain) {
  fs::path object = codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->objects.at(0);
  for (int kind = 0; kind < 3; ++kind) {
    if (kind == 0) { // a changed byte in the middle; in a new file, the old one is loaded
      std::ifstream in(object, std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      bytes[bytes.size() / 2] ^= 1;
      fs::remove(object);
      std::ofstream(object, std::ios::binary) << bytes;
    } else if (kind == 1) {
      fs::remove(object);
      std::ofstream(object, std::ios::binary) << "";
    } else { // sealed with a key that is no more
      fs::remove(toolchain_.cache_dir / "seal.key");
    }
    auto m = codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_);
    EXPECT_EQ(m->compiled, 1) << kind;
    EXPECT_EQ(run(*m, "k_one"), 1);
    EXPECT_EQ(codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->cached, 1) << kind;
  }
}

TEST_F(BuildModule, FilesOthersCouldChangeAreNotTrusted) {
  fs::path object = codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->objects.at(0);
  fs::permissions(object, fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->compiled, 1);
  // A link in place of the object.
  fs::path elsewhere = folder_ / "elsewhere.so";
  fs::rename(object, elsewhere);
  fs::create_symlink(elsewhere, object);
  EXPECT_EQ(codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->compiled, 1);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(object.c_str(), 12345, 0), 0);
    EXPECT_EQ(codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->compiled, 1);
  }
}

/// As if it had been used `seconds` ago.
void set_age(const fs::path& file, int seconds) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

class CacheLimit : public BuildModule {
protected:
  void TearDown() override {
    unsetenv("TBX_CACHE_LIMIT");
    BuildModule::TearDown();
  }
  fs::path build(int i) {
    return codegen::build_module({kernel(fmt::format("k_{}", i), i)}, Isa::sse, toolchain_)->objects.at(0);
  }
  void limit(int64_t bytes) { setenv("TBX_CACHE_LIMIT", fmt::format("{}", bytes).c_str(), 1); }
};

TEST_F(CacheLimit, WhatWasUsedLeastRecentlyGoes) {
  std::vector<fs::path> objects;
  for (int i = 0; i < 4; ++i) objects.push_back(build(i));
  const auto one = static_cast<int64_t>(fs::file_size(objects[0]));
  const fs::path mine = toolchain_.cache_dir / "notes.so",
                 tmp = toolchain_.cache_dir / ".tmp-1-1-00000000.so";
  for (const fs::path& file : {mine, tmp}) {
    std::ofstream(file) << "x";
    set_age(file, 90000);
  }
  for (int i = 0; i < 4; ++i) set_age(objects[i], 4000 - i);
  limit(3 * one + one / 2);
  EXPECT_EQ(build(0), objects[0]); // a hit: nothing is removed, and it is the most recent one now
  EXPECT_EQ(files(".so"), 4 + 2);
  EXPECT_TRUE(fs::exists(tmp));
  objects.push_back(build(4));
  for (int i : {1, 2}) EXPECT_FALSE(fs::exists(objects[i])) << i;
  for (int i : {0, 3, 4}) EXPECT_TRUE(fs::exists(objects[i])) << i;
  EXPECT_TRUE(fs::exists(mine)); // not ours
  EXPECT_FALSE(fs::exists(tmp));
  EXPECT_EQ(codegen::build_module({kernel("k_1", 1)}, Isa::sse, toolchain_)->compiled, 1);
}

TEST_F(CacheLimit, WhatIsInUseStays) {
  limit(1);
  for (int i = 0; i < 3; ++i) build(i); // all within the last minute
  EXPECT_EQ(files(".so"), 3);
  unsetenv("TBX_CACHE_LIMIT");
  for (int i = 0; i < 3; ++i) set_age(build(i), 4000);
  limit(0); // none
  set_age(build(3), 4000);
  EXPECT_EQ(files(".so"), 4);
  limit(1);
  EXPECT_TRUE(fs::exists(build(4)));
  EXPECT_EQ(files(".so"), 1);
}

TEST_F(CacheLimit, ObjectsRemovedMeanwhileServeWhoFoundThem) {
  const fs::path object = build(0);
  auto m = codegen::build_module({kernel("k_0", 0)}, Isa::sse, toolchain_, [&](int done, int total) {
    EXPECT_EQ(done, total); // found, and open; another process makes room
    fs::remove(object);
  });
  EXPECT_EQ(m->cached, 1);
  EXPECT_EQ(run(*m, "k_0"), 0);
  EXPECT_FALSE(fs::exists(object));
}

TEST_F(CacheLimit, IsASize) {
  for (const char* good : {"0", "100", "5kb", "512MB", "2gb", ""}) {
    setenv("TBX_CACHE_LIMIT", good, 1);
    EXPECT_NO_THROW(build(0)) << good;
  }
  setenv("TBX_CACHE_LIMIT", "3kB", 1);
  EXPECT_EQ(codegen::cache_limit(), 3072);
  for (const char* bad : {"-1", "much", "1 gb", "1.5gb", "99999999999gb", "9999999999999999999"}) {
    setenv("TBX_CACHE_LIMIT", bad, 1);
    EXPECT_NE(message({kernel("k_0", 0)}).find("TBX_CACHE_LIMIT is '" + std::string(bad) + "'"),
              std::string::npos)
        << bad;
  }
}

/// What the log says while `kernel` is built, which works.
std::string notes_of(codegen::Toolchain toolchain, const EmittedKernel& kernel) {
  std::string notes;
  toolchain.log = [&](const std::string& text) { notes += text + "\n"; };
  auto m = codegen::build_module({kernel}, Isa::sse, toolchain);
  EXPECT_NE(m->find(kernel.function), nullptr);
  return notes;
}

TEST_F(BuildModule, AFolderOfOthersIsNotUsed) {
  const char* before = getenv("TMPDIR");
  const std::string temporary = before ? before : "";
  setenv("TMPDIR", folder_.c_str(), 1);
  auto notes = [&] { return notes_of(toolchain_, kernel("k_one", 1)); };
  fs::create_directory(toolchain_.cache_dir);
  fs::permissions(toolchain_.cache_dir, fs::perms(0777));
  EXPECT_NE(notes().find("open to other users (mode 777; chmod 700 closes it); kernels are kept in " +
                         folder_.string()),
            std::string::npos);
  EXPECT_EQ(files(""), 0);
  fs::remove(toolchain_.cache_dir);
  fs::create_directory_symlink(folder_, toolchain_.cache_dir);
  EXPECT_NE(notes().find("is a symbolic link, which is not followed"), std::string::npos);
  fs::remove(toolchain_.cache_dir);
  std::ofstream(toolchain_.cache_dir) << "a file";
  EXPECT_NE(notes().find("is not a folder"), std::string::npos);
  fs::remove(toolchain_.cache_dir);
  toolchain_.cache_dir = "/proc/tensorbox";
  EXPECT_NE(notes().find("cannot make the kernel cache /proc/tensorbox"), std::string::npos);
  toolchain_.cache_dir = folder_ / "kernels";
  if (geteuid() == 0) {
    fs::create_directory(toolchain_.cache_dir);
    ASSERT_EQ(chown(toolchain_.cache_dir.c_str(), 12345, 0), 0);
    EXPECT_NE(notes().find("belongs to user 12345"), std::string::npos);
  }
  before ? setenv("TMPDIR", temporary.c_str(), 1) : unsetenv("TMPDIR");
}

TEST_F(BuildModule, WhatIsNoFileIsReplaced) {
  const EmittedKernel k = kernel("k_one", 1);
  const fs::path object = codegen::build_module({k}, Isa::sse, toolchain_)->objects.at(0);
  for (int kind = 0; kind < 3; ++kind) {
    fs::remove(object);
    if (kind == 0) {
      ASSERT_EQ(mkfifo(object.c_str(), 0700), 0);
    }
    if (kind == 1) {
      ASSERT_TRUE(fs::create_directory(object));
    }
    if (kind == 2) fs::create_symlink("/dev/zero", object);
    EXPECT_EQ(codegen::build_module({k}, Isa::sse, toolchain_)->compiled, 1) << kind;
    EXPECT_EQ(codegen::build_module({k}, Isa::sse, toolchain_)->cached, 1) << kind;
  }
  // A folder with something in it is not ours to remove.
  fs::remove(object);
  fs::create_directories(object / "theirs");
  EXPECT_NE(notes_of(toolchain_, k).find("cannot write to the kernel cache"), std::string::npos);
  EXPECT_TRUE(fs::exists(object / "theirs"));
}

TEST_F(BuildModule, ObjectsOfOtherNamesAreNotTaken) {
  const fs::path one = codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_)->objects.at(0);
  const fs::path two = codegen::build_module({kernel("k_two", 2)}, Isa::sse, toolchain_)->objects.at(0);
  fs::remove(two);
  fs::copy_file(one, two);
  EXPECT_EQ(codegen::build_module({kernel("k_two", 2)}, Isa::sse, toolchain_)->compiled, 1);
}

TEST_F(BuildModule, WithoutACompilerAnyObjectServes) {
  const std::vector<EmittedKernel> kernels{kernel("k_one", 1)};
  EXPECT_EQ(codegen::find_module(kernels, Isa::sse, toolchain_), nullptr);
  codegen::build_module(kernels, Isa::sse, toolchain_);
  auto m = codegen::find_module(kernels, Isa::sse, toolchain_);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(run(*m, "k_one"), 1);
  EXPECT_EQ(codegen::find_module(kernels, Isa::avx2, toolchain_), nullptr);
  EXPECT_EQ(codegen::find_module({kernel("k_one", 1), kernel("k_two", 2)}, Isa::sse, toolchain_), nullptr);
}

TEST_F(BuildModule, AnotherCompilerMakesItsOwn) {
  const std::vector<EmittedKernel> kernels{kernel("k_one", 1)};
  const std::string found = codegen::find_compiler(toolchain_);
  codegen::build_module(kernels, Isa::sse, toolchain_);
  // The same program by another name counts as another one.
  toolchain_.compiler = write_compiler("exec '" + found + "' \"$@\"");
  EXPECT_EQ(codegen::build_module(kernels, Isa::sse, toolchain_)->compiled, 1);
  EXPECT_EQ(codegen::build_module(kernels, Isa::sse, toolchain_)->cached, 1);
  toolchain_.compiler.clear();
  EXPECT_EQ(codegen::build_module(kernels, Isa::sse, toolchain_)->cached, 1);
  EXPECT_EQ(files(".so"), 2);
}

/// What a compiler may leave while it says that all went well. The next one finds nothing of it.
TEST_F(BuildModule, RubbishDoesNotEnterTheCache) {
  const std::string found = codegen::find_compiler(toolchain_);
  const std::string out = "while [ \"$1\" != -o ]; do shift; done; ";
  for (const std::string& script :
       {out + "echo rubbish > \"$2\"", out + ": > \"$2\"", std::string("exit 0"),
        out + "rm -f \"$2\"; mkfifo \"$2\"", out + "cp /bin/sh \"$2\"",
        "'" + found + "' \"$@\"; " + out + "head -c 5000 \"$2\" > \"$2.part\"; mv \"$2.part\" \"$2\"",
        "echo | '" + found + "' -x c++ -shared -o /dev/stdout - > /dev/null; " + out + "echo | '" + found +
            "' -x c++ -shared -nostdlib - -o \"$2\""}) {
    toolchain_.compiler = write_compiler(script);
    EXPECT_NE(message({kernel("k_one", 1)}).find("left an object that cannot be used"), std::string::npos)
        << script;
    EXPECT_EQ(files(".so"), 0) << script;
    EXPECT_EQ(files(".tmp"), 0) << script;
  }
  toolchain_.compiler.clear();
  EXPECT_EQ(run(*codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_), "k_one"), 1);
}

TEST_F(BuildModule, SurvivesAProcessThatForgetsItsChildren) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run(*codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_), "k_one"), 1);
  EmittedKernel bad = kernel("k_bad", 0);
  bad.text = "extern \"C\" i64 k_bad() { return undeclared_name; }\n";
  EXPECT_NE(message({bad}).find("undeclared_name"), std::string::npos);
  toolchain_.compiler = write_compiler("exit 1");
  EXPECT_NE(message({kernel("k_two", 2)}), "");
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(files(".so"), 1);
}

TEST_F(BuildModule, FilesOfKilledProcessesAreSwept) {
  toolchain_.compiler = write_compiler("touch \"$TMPDIR/begun\"; sleep 100");
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      codegen::build_module({kernel("k_one", 1)}, Isa::sse, toolchain_);
    } catch (...) {
    }
    _exit(0);
  }
  auto has_begun = [&] {
    for (auto& f : fs::recursive_directory_iterator(toolchain_.cache_dir))
      if (f.path().filename() == "begun") return true;
    return false;
  };
  while (!fs::exists(toolchain_.cache_dir) || !has_begun()) usleep(1000);
  toolchain_.compiler.clear();
  EXPECT_EQ(codegen::build_module({kernel("k_two", 2)}, Isa::sse, toolchain_)->compiled, 1);
  EXPECT_EQ(files(".tmp"), 1); // of the one that compiles
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  codegen::build_module({kernel("k_three", 3)}, Isa::sse, toolchain_);
  EXPECT_EQ(files(".tmp"), 0);
}

TEST_F(BuildModule, InterruptionStopsTheCompiler) {
  toolchain_.compiler = write_compiler("echo $$ > '" + (folder_ / "pid").string() + "'; sleep 100");
  int64_t pid = 0;
  toolchain_.interrupted = [&] { return bool(std::ifstream(folder_ / "pid") >> pid); };
  EXPECT_NE(message({kernel("k_one", 1)}).find("interrupted"), std::string::npos);
  EXPECT_EQ(kill(static_cast<pid_t>(pid), 0), -1);
  EXPECT_EQ(files(".tmp"), 0);
}

TEST_F(BuildModule, LimitsOfTheCompilerNameTheirOptions) {
  toolchain_.compiler = write_compiler("sleep 100");
  toolchain_.time_limit_ms = 50;
  EXPECT_NE(full_message({kernel("k_one", 1)}).find("raise compile_time_limit_ms"), std::string::npos);
  toolchain_.compiler.clear();
  toolchain_.time_limit_ms = 0;
  for (const int64_t limit : {40 << 20, 1 << 20}) { // too little to compile, and to start the compiler
    toolchain_.memory_limit = limit;
    EXPECT_NE(full_message({kernel("k_one", 1)}).find("which compile_memory raises"), std::string::npos);
  }
  toolchain_.memory_limit = 0;
  toolchain_.compiler = write_compiler("kill -9 $$");
  EXPECT_NE(full_message({kernel("k_one", 1)}).find(".cpp without a word"), std::string::npos);
  EXPECT_EQ(files(".tmp"), 0);
}

TEST_F(BuildModule, TheTimeOfTheCompilerIsThatOfAllKernels) {
  std::vector<EmittedKernel> many; // ten units, each of which would have the time
  for (int i = 0; i < 40; ++i) many.push_back(kernel(fmt::format("k_many{}", i), 1));
  toolchain_.compiler =
      write_compiler("sleep 0.1; exec '" + codegen::find_compiler(codegen::Toolchain{}) + "' \"$@\"");
  toolchain_.jobs = 1;
  toolchain_.time_limit_ms = 900;
  EXPECT_NE(full_message(many).find("limit of 900 ms for the kernels of a model"), std::string::npos);

  // So is what the loading has waited for before.
  toolchain_.compiler.clear();
  toolchain_.time_limit_ms = 100'000;
  const LoadScope scope(0, 0);
  {
    const OutsideOfLoad waiting;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(waited_outside_ms(), 20);
  EXPECT_EQ(codegen::build_module({kernel("k_more", 1)}, Isa::sse, toolchain_)->compiled, 1);
  toolchain_.time_limit_ms = 20;
  EXPECT_NE(full_message({kernel("k_late", 1)}).find("raise compile_time_limit_ms"), std::string::npos);
}

TEST_F(BuildModule, CompilerErrorsNameTheSource) {
  EmittedKernel bad = kernel("k_bad", 0);
  bad.text = "extern \"C\" i64 k_bad() { return undeclared_name; }\n";
  std::string why = message({bad});
  EXPECT_NE(why.find("undeclared_name"), std::string::npos) << why;
  size_t at = why.find(toolchain_.cache_dir.string());
  ASSERT_NE(at, std::string::npos) << why;
  std::string path = why.substr(at, why.find(":\n", at) - at);
  EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(BuildModule, SaysWhenThereIsNoCompiler) {
  toolchain_.compiler = "/nonexistent/c++";
  EXPECT_EQ(codegen::compiler_fault(toolchain_),
            "no C++ compiler found (install g++ or clang++, or set TBX_CXX to one)");
  EXPECT_NE(message({kernel("k_two", 2)}).find("no C++ compiler found"), std::string::npos);
}

TEST_F(BuildModule, SaysWhyACompilerDoesNotWork) {
  toolchain_.compiler = write_compiler("echo no licence; exit 3");
  EXPECT_FALSE(codegen::have_compiler(toolchain_));
  EXPECT_NE(codegen::compiler_fault(toolchain_).find("(exit status 3: no licence)"), std::string::npos);
}

TEST_F(BuildModule, NamesOfCompilersAreNotShellText) {
  toolchain_.compiler = "c++; touch " + (folder_ / "owned").string();
  EXPECT_FALSE(codegen::have_compiler(toolchain_));
  EXPECT_FALSE(fs::exists(folder_ / "owned"));
}

TEST(RunProcess, IsBoundedInTime) {
  auto r = codegen::run_process({"/bin/sh", "-c", "echo begun; sleep 30"}, 1);
  EXPECT_TRUE(r.timed_out);
  EXPECT_EQ(r.output, "begun\n");
  EXPECT_EQ(codegen::run_process({"/bin/sh", "-c", "exit 3"}, 10).status, 3);
  EXPECT_EQ(codegen::run_process({"/nonexistent"}, 10).status, -1);
  EXPECT_LE(codegen::run_process({"/bin/sh", "-c", "yes | head -c 1000000"}, 10).output.size(),
            size_t{128} << 10);
}

} // namespace
} // namespace tbx::test
