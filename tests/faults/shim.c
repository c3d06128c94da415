// Preloaded: makes one call of a kind fail. FAULT=kind:n says which (from 1), or 0 to count only; FAULT_REPORT is a file
// that gets the number of calls when the process exits, or "hit" when the call failed.
//
// FAULT=malloc:FIRST-LAST/STEP tries many calls in one run: before each the process forks, until it makes its first thread
// (what libraries know of threads that a child has not makes it hang or crash).
// In the child the call fails, and the child goes on to its end, as the process would have; the parent waits for it, and
// goes on as if nothing had been. What children left is judged here: FAULT_OUTPUT is the file that they write,
// FAULT_EXPECTED holds what must be in it. FAULT_REPORT gets a line for each call: its number, how the child ended (an exit
// status, or 256 and the signal; 0 only with the right output, else 600; 601 where an error says nothing), or -1 where
// threads had been made.
//
// Who crashes says in whose code: "crash in FILE" on standard error, FILE being the first one on the stack that is no
// run-time library of the language.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MALLOC, MMAP, OPEN, WRITE, RENAME, THREAD, SPAWN, WAIT, KINDS };
static const char* const names[KINDS] = {"malloc", "mmap", "open", "write", "rename", "thread", "spawn", "wait"};
static int chosen = -1;
static long target, last, step; // last > 0: by children
static const char *output, *expected;
static char text_path[4096]; // what a child prints
static volatile long count;
static int report = -1;
static __thread int inside;
static volatile int made_threads;
static volatile int begun; // main runs: libraries that the loader sets up cannot report errors

static void crashed(int number) {
  void* frames[64];
  char line[256];
  const char* name = "?";
  const int n = backtrace(frames, 64);
  chosen = -1;
  for (int i = 1; i < n; ++i) {
    Dl_info info;
    if (!dladdr(frames[i], &info) || !info.dli_fname) continue;
    name = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    if (!strncmp(name, "shim.so", 7) || !strncmp(name, "libc.so", 7) || !strncmp(name, "libstdc++", 9) || !strncmp(name, "libintlc", 8)) continue;
    break;
  }
  syscall(SYS_write, 2, line, (size_t)snprintf(line, sizeof line, "crash in %s\n", name));
  signal(number, SIG_DFL); // the instruction is done again, and ends the process
}

__attribute__((constructor)) static void start(void) {
  const char *fault = getenv("FAULT"), *path = getenv("FAULT_REPORT");
  if (!fault || !path) return;
  void* unused[2];
  backtrace(unused, 2); // loads what it needs
  signal(SIGSEGV, crashed);
  signal(SIGBUS, crashed);
  signal(SIGABRT, crashed); // the C library, of memory that somebody spoilt
  report = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  report = (int)syscall(SYS_fcntl, report, F_DUPFD_CLOEXEC, 200);
  const char* colon = strchr(fault, ':');
  char* rest;
  target = strtol(colon + 1, &rest, 10);
  if (*rest == '-') {
    last = strtol(rest + 1, &rest, 10);
    step = *rest == '/' ? atol(rest + 1) : 1;
    output = getenv("FAULT_OUTPUT");
    expected = getenv("FAULT_EXPECTED");
    snprintf(text_path, sizeof text_path, "%s.text", path);
  }
  for (int k = 0; k < KINDS; ++k)
    if (!strncmp(fault, names[k], (size_t)(colon - fault)) && strlen(names[k]) == (size_t)(colon - fault)) chosen = k;
}
__attribute__((destructor)) static void finish(void) {
  char text[32];
  if (report >= 0 && chosen >= 0 && last == 0 && (target == 0 || count < target))
    syscall(SYS_write, report, text, (size_t)snprintf(text, sizeof text, "%ld", count));
}

// Nothing below allocates memory, or calls what counts.
static int opened(const char* path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600); }
static int equal_files(const char* a, const char* b) {
  char x[4096], y[4096];
  const int fa = opened(a, O_RDONLY), fb = opened(b, O_RDONLY);
  int equal = fa >= 0 && fb >= 0;
  for (long n = 1; equal && n > 0;) {
    n = syscall(SYS_read, fa, x, sizeof x);
    equal = n >= 0 && syscall(SYS_read, fb, y, sizeof y) == n && !memcmp(x, y, (size_t)n);
  }
  if (fa >= 0) syscall(SYS_close, fa);
  if (fb >= 0) syscall(SYS_close, fb);
  return equal;
}
static int outcome_of(int status) {
  if (status & 127) return 256 + (status & 127);
  const int code = status >> 8 & 255;
  if (code == 0) return output && equal_files(output, expected) ? 0 : 600;
  const int fd = opened(text_path, O_RDONLY);
  const long said = syscall(SYS_lseek, fd, 0, SEEK_END);
  syscall(SYS_close, fd);
  return said > 0 ? code : 601;
}
enum { FILES = 64 };
// True in a child whose call is to fail.
static int in_child(long n) {
  char line[64];
  int outcome = -1;
  if (!made_threads) {
    long at[FILES]; // children move what they read
    for (int fd = 0; fd < FILES; ++fd) at[fd] = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    if (output) syscall(SYS_unlinkat, AT_FDCWD, output, 0);
    const pid_t pid = _Fork();
    if (pid == 0) {
      chosen = -1;
      const int text = opened(text_path, O_WRONLY | O_CREAT | O_TRUNC);
      syscall(SYS_dup3, text, 1, 0);
      syscall(SYS_dup3, text, 2, 0);
      alarm(30); // who hangs ends by a signal
      return 1;
    }
    int status = 0;
    syscall(SYS_wait4, pid, &status, 0, NULL);
    outcome = pid < 0 ? 602 : outcome_of(status);
    for (int fd = 0; fd < FILES; ++fd)
      if (at[fd] >= 0) syscall(SYS_lseek, fd, at[fd], SEEK_SET);
  }
  syscall(SYS_write, report, line, (size_t)snprintf(line, sizeof line, "%ld %d\n", n, outcome));
  return 0;
}
static int fails(int kind) {
  if (kind != chosen || inside || !begun) return 0;
  const long n = __sync_add_and_fetch(&count, 1);
  if (last > 0) return n >= target && n <= last && (n - target) % step == 0 ? in_child(n) : 0;
  if (n != target) return 0;
  syscall(SYS_write, report, "hit", 3);
  return 1;
}
#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) { inside++; real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); inside--; }

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
static void* none(void) { errno = ENOMEM; return NULL; }
void* malloc(size_t n) { return fails(MALLOC) ? none() : __libc_malloc(n); }
void* calloc(size_t n, size_t m) { return fails(MALLOC) ? none() : __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { return fails(MALLOC) ? none() : __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { return fails(MALLOC) ? none() : __libc_memalign(a, n); }
void* memalign(size_t a, size_t n) { return fails(MALLOC) ? none() : __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) {
  if (fails(MALLOC)) return ENOMEM;
  return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM;
}
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  REAL(mmap)
  if (fails(MMAP)) { errno = ENOMEM; return MAP_FAILED; }
  return real(at, n, protection, flags, fd, offset);
}
// The first thing that main of `tbx` does is to open /dev/null.
#define OPEN_WITH(call) \
  if (!begun && !strcmp(path, "/dev/null")) begun = 1; \
  va_list list; \
  va_start(list, flags); \
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
  va_end(list); \
  if (fails(OPEN)) { errno = EMFILE; return -1; } \
  return call;
int open(const char* path, int flags, ...) { OPEN_WITH((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode)) }
int open64(const char* path, int flags, ...) { OPEN_WITH((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode)) }
int openat(int at, const char* path, int flags, ...) { OPEN_WITH((int)syscall(SYS_openat, at, path, flags, mode)) }
int openat64(int at, const char* path, int flags, ...) { OPEN_WITH((int)syscall(SYS_openat, at, path, flags, mode)) }
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen)
  if (fails(OPEN)) { errno = EMFILE; return NULL; }
  return real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64)
  if (fails(OPEN)) { errno = EMFILE; return NULL; }
  return real(path, mode);
}
ssize_t write(int fd, const void* data, size_t n) {
  if (fails(WRITE)) { errno = ENOSPC; return -1; }
  return syscall(SYS_write, fd, data, n);
}
size_t fwrite(const void* data, size_t size, size_t n, FILE* file) {
  REAL(fwrite)
  if (fails(WRITE)) { errno = ENOSPC; file->_flags |= 0x20; return 0; } // what ferror() looks at, in glibc
  return real(data, size, n, file);
}
ssize_t writev(int fd, const struct iovec* parts, int n) {
  if (fails(WRITE)) { errno = ENOSPC; return -1; }
  return syscall(SYS_writev, fd, parts, n);
}
int rename(const char* a, const char* b) {
  if (fails(RENAME)) { errno = EACCES; return -1; }
  return (int)syscall(SYS_renameat, AT_FDCWD, a, AT_FDCWD, b);
}
int renameat(int at, const char* a, int bt, const char* b) {
  if (fails(RENAME)) { errno = EACCES; return -1; }
  return (int)syscall(SYS_renameat, at, a, bt, b);
}
int linkat(int at, const char* a, int bt, const char* b, int flags) {
  if (fails(RENAME)) { errno = EACCES; return -1; }
  return (int)syscall(SYS_linkat, at, a, bt, b, flags);
}
int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) {
  REAL(pthread_create)
  if (fails(THREAD)) return EAGAIN;
  made_threads = 1;
  return real(t, a, f, x);
}
pid_t vfork(void) { // a function may not return after vfork: fork serves
  if (fails(SPAWN)) { errno = EAGAIN; return -1; }
  return fork();
}
pid_t waitpid(pid_t pid, int* status, int options) {
  const pid_t ended = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
  if (ended > 0 && fails(WAIT)) { errno = ECHILD; return -1; }
  return ended;
}
