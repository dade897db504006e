// Fail system calls on files below one folder, loaded by LD_PRELOAD: the n-th of the kinds that a fault is for.
//
// gcc -shared -fPIC -O1 -o failing_calls.so failing_calls.c
//
// A process that has it calls arm() when it begins (through ctypes); a fork()ed child counts for itself.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, CREATE, WRITE, CLOSE, RENAME, MKDIR, UNLINK, SYNC, TRUNCATE, LINK, STAT, READ, LOCK, KINDS };
static const char *const NAMES[] = {"open", "create", "write", "close", "rename", "mkdir", "unlink",
                                    "sync", "truncate", "link", "stat", "read", "lock"};
enum { SHORT = 0, KILL = -1, TORN = -2 };  // else an errno

static char folder[PATH_MAX];
static size_t length;
static long counts[KINDS], at, nth, kinds;
static int fault, lasting;
static char hit_call[2 * PATH_MAX + 32];

// folder_: whose files are meant, without links in its path. kinds_: a bit for each kind. nth_: from 1; 0 counts only.
// fault_: an errno, SHORT (write a half), KILL (before the call), TORN (after a half). lasting_: all from there on fail.
void arm(const char *folder_, long kinds_, long nth_, int fault_, int lasting_) {
    strncpy(folder, folder_, sizeof folder - 1);
    memset(counts, 0, sizeof counts);
    at = 0, nth = nth_, kinds = kinds_, fault = fault_, lasting = lasting_, hit_call[0] = 0;
    __atomic_store_n(&length, strlen(folder), __ATOMIC_SEQ_CST);
}

long counted(int kind) { return counts[kind]; }

// The call that failed first, "" before.
const char *hit(void) { return hit_call; }

static ssize_t path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size;
}

static int below(const char *path) {
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

// 1 where this call is to fail. at_fd, name: what it is of; name NULL: the open file.
static int fails(int kind, int at_fd, const char *name) {
    char path[2 * PATH_MAX] = "";
    if (!length) return 0;
    int before = errno;
    if (name && name[0] == '/') snprintf(path, sizeof path, "%s", name);
    else if (at_fd != AT_FDCWD && path_of(at_fd, path) > 0 && name)
        snprintf(path + strlen(path), PATH_MAX, "/%s", name);
    errno = before;
    if (!below(path)) return 0;
    __atomic_add_fetch(&counts[kind], 1, __ATOMIC_SEQ_CST);
    if (!(kinds >> kind & 1)) return 0;
    long here = __atomic_add_fetch(&at, 1, __ATOMIC_SEQ_CST);
    if (!nth || here < nth || (here > nth && !lasting)) return 0;
    if (here == nth) snprintf(hit_call, sizeof hit_call, "%s %s", NAMES[kind], path);
    if (fault == KILL) kill(getpid(), SIGKILL), pause();
    if (fault > 0) errno = fault;
    return 1;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAILING(kind, result, name, declared, fd, path, ...) \
    result name declared { REAL(name); return fails(kind, fd, path) ? -1 : real(__VA_ARGS__); }

#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
#define KIND (flags & O_CREAT ? CREATE : OPEN)
#define OPENING(name) \
    int name(const char *path, int flags, ...) { MODE REAL(name); return fails(KIND, AT_FDCWD, path) ? -1 : real(path, flags, mode); }
#define OPENING_AT(name) \
    int name(int fd, const char *path, int flags, ...) { MODE REAL(name); return fails(KIND, fd, path) ? -1 : real(fd, path, flags, mode); }
OPENING(open) OPENING(open64) OPENING_AT(openat) OPENING_AT(openat64)

// Half of the bytes where that is the fault; else -1.
#define HALF(half) if (fault > 0) return -1; ssize_t done = (half); if (fault == TORN) kill(getpid(), SIGKILL), pause(); return done;

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!fails(WRITE, fd, NULL)) return real(fd, data, size);
    HALF(real(fd, data, size > 1 ? size / 2 : size))
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    REAL(pwrite64);
    if (!fails(WRITE, fd, NULL)) return real(fd, data, size, where);
    HALF(real(fd, data, size > 1 ? size / 2 : size, where))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t where) { return pwrite64(fd, data, size, where); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    if (!fails(WRITE, fd, NULL)) return real(fd, parts, count);
    struct iovec first = parts[0];
    if (count == 1 && first.iov_len > 1) first.iov_len /= 2;
    HALF(real(fd, &first, 1))
}
int close(int fd) {
    REAL(close);
    if (!fails(CLOSE, fd, NULL)) return real(fd);
    real(fd);  // as Linux does: the number is free again, whatever it says
    errno = fault;
    return -1;
}

FAILING(RENAME, int, rename, (const char *from, const char *to), AT_FDCWD, to, from, to)
FAILING(RENAME, int, renameat, (int a, const char *from, int b, const char *to), b, to, a, from, b, to)
FAILING(MKDIR, int, mkdir, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
FAILING(MKDIR, int, mkdirat, (int fd, const char *path, mode_t mode), fd, path, fd, path, mode)
FAILING(UNLINK, int, unlink, (const char *path), AT_FDCWD, path, path)
FAILING(UNLINK, int, rmdir, (const char *path), AT_FDCWD, path, path)
FAILING(UNLINK, int, unlinkat, (int fd, const char *path, int flags), fd, path, fd, path, flags)
FAILING(SYNC, int, fsync, (int fd), fd, NULL, fd)
FAILING(SYNC, int, fdatasync, (int fd), fd, NULL, fd)
FAILING(TRUNCATE, int, ftruncate, (int fd, off_t size), fd, NULL, fd, size)
FAILING(TRUNCATE, int, ftruncate64, (int fd, off64_t size), fd, NULL, fd, size)
FAILING(LINK, int, link, (const char *from, const char *to), AT_FDCWD, to, from, to)
FAILING(LINK, int, linkat, (int a, const char *from, int b, const char *to, int flags), b, to, a, from, b, to, flags)
FAILING(LINK, int, symlink, (const char *from, const char *to), AT_FDCWD, to, from, to)
FAILING(LINK, int, symlinkat, (const char *from, int fd, const char *to), fd, to, from, fd, to)
FAILING(STAT, int, fstat, (int fd, struct stat *found), fd, NULL, fd, found)
FAILING(STAT, int, fstat64, (int fd, struct stat64 *found), fd, NULL, fd, found)
FAILING(STAT, int, stat, (const char *path, struct stat *found), AT_FDCWD, path, path, found)
FAILING(STAT, int, stat64, (const char *path, struct stat64 *found), AT_FDCWD, path, path, found)
FAILING(READ, ssize_t, read, (int fd, void *data, size_t size), fd, NULL, fd, data, size)
FAILING(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t where), fd, NULL, fd, data, size, where)
FAILING(READ, ssize_t, pread64, (int fd, void *data, size_t size, off64_t where), fd, NULL, fd, data, size, where)
FAILING(READ, ssize_t, preadv2, (int fd, const struct iovec *parts, int count, off_t where, int flags), fd, NULL, fd, parts, count, where, flags)
FAILING(READ, ssize_t, preadv64v2, (int fd, const struct iovec *parts, int count, off64_t where, int flags), fd, NULL, fd, parts, count, where, flags)
FAILING(LOCK, int, flock, (int fd, int how), fd, NULL, fd, how)
