"""Programs see no more instruction sets than they are left: in threads, children, behind handlers and masks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import hide_isa  # noqa: E402

PROBE = r"""
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void handler(int number) { _exit(number == SIGSEGV ? 42 : 1); }
static void *sets(void *unused) {
  unsigned a = 0, b = 0, c = 0, d = 0, e = 0;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  __get_cpuid_count(7, 1, &e, &a, &a, &a);
  printf("%u%u%u%u%u ", d >> 24 & 1, b >> 16 & 1, c >> 11 & 1, e >> 4 & 1, b >> 5 & 1); // the last one is AVX2
  fflush(stdout);
  return unused;
}
int supports(void);
int main(int count, char **arguments) {
  printf("%d ", supports());
  sets(NULL);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  signal(SIGSEGV, handler);
  pthread_t thread;
  pthread_create(&thread, NULL, sets, NULL);
  pthread_join(thread, NULL);
  if (count == 1) {
    execl(arguments[0], arguments[0], "again", NULL);
  }
  pthread_sigmask(SIG_UNBLOCK, &all, NULL);
  *(volatile int *)0 = 1;
  return 0;
}
"""
# libgcc asks in a constructor of the library.
LIBRARY = 'int supports(void) { return __builtin_cpu_supports("avx512f") != 0; }'


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    (folder / "library.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "library.c", "-o", "library.so"], cwd=folder, check=True)
    command = ["cc", "probe.c", "-L.", "-l:library.so", "-Wl,-rpath,$ORIGIN", "-pthread", "-o", "probe"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "probe"


def environment(isa: str) -> dict[str, str]:
    try:
        return hide_isa.environment(isa)
    except hide_isa.CannotHide as reason:
        pytest.skip(str(reason))


def sets_of(probe: Path, more: dict[str, str]) -> list[str]:
    """AVX-512, and AMX, AVX-512, AVX-512 VNNI, AVX-VNNI and AVX2, as often as the probe asks."""
    done = subprocess.run([probe], env=os.environ | more, capture_output=True, text=True)
    # The handler is the program's own: what faults is its business.
    assert done.returncode == 42, done.stderr
    words = done.stdout.split()
    assert len(words) == 6 and words[:3] == words[3:], "exec asks again"
    assert words[1] == words[2], "a thread with all signals blocked asks the same"
    return words[:2]


@pytest.mark.parametrize(("isa", "most"), [("avx512-vnni", "01111"), ("avx-vnni", "00011"), ("avx2", "00001")])
def test_programs_see_what_is_left(probe: Path, isa: str, most: str) -> None:
    more = environment(isa)
    supports, there = sets_of(probe, {})
    expected = "".join(min(one, other) for one, other in zip(there, most, strict=True))
    assert sets_of(probe, more) == [expected[1], expected]
    assert supports == there[1]


def test_other_names_and_plain_faults_end_the_program(probe: Path) -> None:
    more = environment("avx2")
    done = subprocess.run(["true"], env=os.environ | more | {"KEEP_ISA": "mmx"}, capture_output=True, text=True)
    assert done.returncode == 1 and "none of avx512-vnni" in done.stderr
    killed = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"], env=os.environ | more)
    assert killed.returncode == -signal.SIGSEGV
    sent = subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], env=os.environ | more)
    assert sent.returncode == -signal.SIGSEGV


def test_the_machine_is_said_to_have_what_is_left() -> None:
    flags = ["avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "amx_tile"]
    assert hide_isa.left(flags, "avx512-vnni") == flags[:5]
    assert hide_isa.left(flags, "avx-vnni") == flags[:3]
    assert hide_isa.left(flags, "avx2") == flags[:2]
