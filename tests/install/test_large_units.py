"""Many files are compiled at a time: which ones may be joined, and that none is lost."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
import large_units  # noqa: E402


def own(declarations):
    return set(large_units.own_names(f"namespace tbx {{\nnamespace {{\n{declarations}\n}} // namespace\nint shared();\n}}\n"))


@pytest.mark.parametrize(
    "declaration, name",
    [
        ("int one(int x) {\n  return other(x);\n}", "one"),
        ("const char* const kName = other();", "kName"),
        ("constexpr int kSizes[] = {1, 2};", "kSizes"),
        ("thread_local std::shared_ptr<Budget> current;", "current"),
        ("struct Pair : Base {\n  int a;\n};", "Pair"),
        ("enum class Kind { a, b };", "Kind"),
        ("template <class T> std::vector<T> all(Span<const T> of) {\n}", "all"),
        ('__attribute__((target("avx2"))) void add(float* x) {\n}', "add"),
        ("using Lanes __attribute__((vector_size(16))) = float;", "Lanes"),
    ],
)
def test_names_of_a_file(declaration, name):
    assert own(declaration) == {name}


def test_tests_have_no_names():
    assert own("TEST(Shapes, Add) {\n}\nTEST_P(Shapes, Scale) {\n}\nINSTANTIATE_TEST_SUITE_P(All, Shapes, testing::Values(1));") == set()


def test_names_outside_of_the_namespace():
    assert set(large_units.own_names("static int one(int);\n#define TWO 2\n#define GONE 3\n#undef GONE\nint four();\n")) == {"one", "TWO"}
    # Where the end is not marked, what follows counts as well.
    assert "current" in large_units.own_names("namespace {\nint* current = nullptr;\n}\nvoid f() {}\n")


def test_files_with_one_name_are_kept_apart(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(f"namespace {{\n{text}\n}} // namespace\n")
        return str(tmp_path / name)

    a = file("a.cpp", "int f() { return 1; }")
    b = file("b.cpp", "double f(double) { return 2; }")
    c = file("c.cpp", "using Values = std::vector<int>;")
    d = file("d.cpp", "using Values = std::vector<int>;")
    e = file("e.cpp", "using Values = std::vector<long>;")
    (tmp_path / "f.cpp").write_text("using namespace other;\n")
    (tmp_path / "g.cpp").write_text("using namespace other;\nint g();\n")
    f, g = str(tmp_path / "f.cpp"), str(tmp_path / "g.cpp")
    assert large_units.units([a, f, b, c, d, e, g], 1000) == [[a, c, d], [f, g], [b, e]]
    assert large_units.units([a, c, d], 6) == [[a, c], [d]]


def test_every_file_is_in_one_unit():
    for folder in ("lowering", "extern_kernels", "runtime"):
        files = sorted(map(str, (ROOT / folder).rglob("*.cpp")))
        assert sorted(file for unit in large_units.units(files, 1500) for file in unit) == files
