/* Make the n-th system call on files below one folder fail: loaded before libc (LD_PRELOAD) by test_failing_calls.py.
 *
 * FAILING_BELOW is the folder. arm(n, how) counts from there: how is the errno to fail with, 0 for a write that is cut
 * short, -1 for SIGKILL, and 1000 to count alone. failing_count() returns the calls so far. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long at = -1, seen = 0;
static int with = 1000;

void arm(long n, int how) { at = n; with = how; seen = 0; }
long failing_count(void) { return seen; }

static int below(const char *path) {
    const char *folder = getenv("FAILING_BELOW");
    return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return below(path);
}

static int named(int dir, const char *path) { return path[0] == '/' ? below(path) : dir >= 0 && fd_below(dir); }

/* 0: go on; 1: fail, errno is set; 2: cut the write short. */
static int due(int ours) {
    if (!ours || at < 0) return 0;
    if (++seen != at || with == 1000) return 0;
    if (with == -1) kill(getpid(), SIGKILL);
    if (with == 0) return 2;
    errno = with;
    return 1;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list v; va_start(v, flags); mode = va_arg(v, mode_t); va_end(v); }

int open(const char *path, int flags, ...) { REAL(open); MODE if (due(named(-1, path)) == 1) return -1; return real(path, flags, mode); }
int open64(const char *path, int flags, ...) { REAL(open64); MODE if (due(named(-1, path)) == 1) return -1; return real(path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { REAL(openat); MODE if (due(named(dir, path)) == 1) return -1; return real(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { REAL(openat64); MODE if (due(named(dir, path)) == 1) return -1; return real(dir, path, flags, mode); }
ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    int what = due(fd_below(fd));
    return what == 1 ? -1 : real(fd, data, what == 2 ? (n + 1) / 2 : n);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int what = due(fd_below(fd));
    if (what == 1) return -1;
    if (what == 2) { struct iovec half = parts[0]; half.iov_len = (half.iov_len + 1) / 2; return real(fd, &half, 1); }
    return real(fd, parts, count);
}
int rename(const char *a, const char *b) { REAL(rename); return due(named(-1, b)) == 1 ? -1 : real(a, b); }
int renameat(int da, const char *a, int db, const char *b) { REAL(renameat); return due(named(db, b)) == 1 ? -1 : real(da, a, db, b); }
int link(const char *a, const char *b) { REAL(link); return due(named(-1, b)) == 1 ? -1 : real(a, b); }
int linkat(int da, const char *a, int db, const char *b, int flags) { REAL(linkat); return due(named(db, b)) == 1 ? -1 : real(da, a, db, b, flags); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return due(named(-1, path)) == 1 ? -1 : real(path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { REAL(mkdirat); return due(named(dir, path)) == 1 ? -1 : real(dir, path, mode); }
int unlink(const char *path) { REAL(unlink); return due(named(-1, path)) == 1 ? -1 : real(path); }
int unlinkat(int dir, const char *path, int flags) { REAL(unlinkat); return due(named(dir, path)) == 1 ? -1 : real(dir, path, flags); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); return due(fd_below(fd)) == 1 ? -1 : real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return due(fd_below(fd)) == 1 ? -1 : real(fd, size); }
int close(int fd) {
    REAL(close);
    int what = due(fd_below(fd));
    int done = real(fd); /* it is closed all the same, as Linux does */
    if (what == 1) { errno = with; return -1; }
    return done;
}
