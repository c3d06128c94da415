// Hides instruction sets from a program and from what it starts, so that a CPU measures as an older one would:
//
//     cc -O2 -shared -fPIC -Wl,-z,initfirst bench/hide_isa.c -o hide_isa.so
//     KEEP_ISA=avx2 LD_PRELOAD=./hide_isa.so program
//
// KEEP_ISA is what is left: avx512-vnni (no AMX), avx-vnni (no AVX-512 either) or avx2 (no VNNI either). CPUID faults
// (Linux on CPUs and machines that let it), and the handler answers without the bits. Threads and forks inherit that,
// exec starts it anew. The C library itself and the loader have asked before, and XGETBV still tells which registers
// the system saves. `initfirst`: other libraries ask in their constructors.
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { kAmx = 1, kAvx512, kVnni }; // each with those before it
static int hidden;
static struct sigaction others; // what the program wants to do about SIGSEGV

static long set_faulting(int on) {
  const long kSetCpuid = 0x1012; // ARCH_SET_CPUID
  return syscall(SYS_arch_prctl, kSetCpuid, !on);
}

static void hide(uint32_t leaf, uint32_t part, uint32_t r[4]) { // eax, ebx, ecx, edx
  const uint32_t kTileLeaf = 0x1d, kProductLeaf = 0x1e, kAvx10Leaf = 0x24;
  if (leaf == 7 && part == 0) {
    r[3] &= ~(1u << 22 | 1u << 24 | 1u << 25); // AMX: BF16, TILE, INT8
    if (hidden >= kAvx512) {
      r[1] &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
      r[2] &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
      r[3] &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 23);
    }
  } else if (leaf == 7 && part == 1) {
    r[0] &= ~(1u << 21);                                            // AMX-FP16
    r[3] &= ~(1u << 8);                                             // AMX-COMPLEX
    if (hidden >= kAvx512) r[0] &= ~(1u << 5), r[3] &= ~(1u << 19); // AVX512-BF16, AVX10
    if (hidden >= kVnni) r[0] &= ~(1u << 4 | 1u << 23);             // AVX-VNNI, AVX-IFMA
    if (hidden >= kVnni) r[3] &= ~(1u << 4 | 1u << 5 | 1u << 10);   // VNNI-INT8, NE-CONVERT, VNNI-INT16
  } else if (leaf == kTileLeaf || leaf == kProductLeaf || (leaf == kAvx10Leaf && hidden >= kAvx512)) {
    memset(r, 0, 4 * sizeof *r);
  }
}

static int real_sigaction(int number, const struct sigaction *now, struct sigaction *before) {
  static int (*real)(int, const struct sigaction *, struct sigaction *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sigaction");
  return real(number, now, before);
}

static void on_fault(int number, siginfo_t *info, void *context) {
  greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *at = (const uint8_t *)g[REG_RIP];
  if (info->si_code == SI_KERNEL && at[0] == 0x0f && at[1] == 0xa2) { // cpuid
    uint32_t r[4];
    set_faulting(0);
    __cpuid_count((uint32_t)g[REG_RAX], (uint32_t)g[REG_RCX], r[0], r[1], r[2], r[3]);
    set_faulting(1);
    hide((uint32_t)g[REG_RAX], (uint32_t)g[REG_RCX], r);
    g[REG_RAX] = r[0], g[REG_RBX] = r[1], g[REG_RCX] = r[2], g[REG_RDX] = r[3];
    g[REG_RIP] += 2;
    return;
  }
  if (others.sa_flags & SA_SIGINFO) return others.sa_sigaction(number, info, context);
  if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) return others.sa_handler(number);
  if (others.sa_handler == SIG_IGN && info->si_code <= 0) return; // sent by somebody
  real_sigaction(number, &others, NULL); // what faults does so again, what was sent is sent again
  if (info->si_code <= 0) raise(number);
}

// The program's own ways to handle and to block SIGSEGV.

static void unblock(sigset_t *set) {
  if (hidden) sigdelset(set, SIGSEGV);
}

int sigaction(int number, const struct sigaction *now, struct sigaction *before) {
  struct sigaction changed;
  if (now) changed = *now, unblock(&changed.sa_mask);
  if (number != SIGSEGV || !hidden) return real_sigaction(number, now ? &changed : NULL, before);
  const struct sigaction last = others;
  if (now) others = changed;
  if (before) *before = last;
  return 0;
}

void (*signal(int number, void (*handler)(int)))(int) {
  struct sigaction now = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  return sigaction(number, &now, &before) ? SIG_ERR : before.sa_handler;
}

typedef int Mask(int, const sigset_t *, sigset_t *);
static int mask_by(const char *name, int how, const sigset_t *set, sigset_t *before) {
  sigset_t changed;
  if (set) changed = *set;
  if (set && how != SIG_UNBLOCK) unblock(&changed);
  Mask *real;
  *(void **)&real = dlsym(RTLD_NEXT, name);
  return real(how, set ? &changed : NULL, before);
}
int sigprocmask(int how, const sigset_t *set, sigset_t *before) { return mask_by("sigprocmask", how, set, before); }
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
  return mask_by("pthread_sigmask", how, set, before);
}

static const char *value_of(const char *name, char **variables) {
  const size_t length = strlen(name);
  for (; *variables; ++variables)
    if (!strncmp(*variables, name, length) && (*variables)[length] == '=') return *variables + length + 1;
  return NULL;
}

// The C library itself is not ready yet: it has neither variables nor files.
__attribute__((constructor)) static void start(int count, char **arguments, char **variables) {
  (void)count, (void)arguments;
  const char *kept = value_of("KEEP_ISA", variables);
  if (!kept || !*kept) return;
  const char *names[] = {"avx512-vnni", "avx-vnni", "avx2"};
  for (int i = 0; i < 3; ++i)
    if (!strcmp(kept, names[i])) hidden = kAmx + i;
  struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigfillset(&ours.sa_mask); // nobody else's handler asks while CPUID answers
  sigset_t faults;           // whoever started this one may block them
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  const char *why = !hidden ? "KEEP_ISA is none of avx512-vnni, avx-vnni and avx2\n" : NULL;
  if (!why && (real_sigaction(SIGSEGV, &ours, &others) || mask_by("sigprocmask", SIG_UNBLOCK, &faults, NULL) ||
               set_faulting(1)))
    why = "CPUID does not fault here: no instruction sets can be hidden\n";
  if (!why) return;
  if (write(STDERR_FILENO, why, strlen(why)) < 0) _exit(2);
  _exit(1);
}
