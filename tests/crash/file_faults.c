/* Counts, refuses, cuts short, records and ends a process at the file operations below one folder.
 *
 * Loaded with LD_PRELOAD; asleep until faults_arm() is called. What a library does by a direct system call (the
 * `rustix` parts of Tantivy's temporary files) or through a memory mapping (SQLite's -shm) is not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, UNLINK = 8, CREATE = 16, TRUNCATE = 32, REOPEN = 64, MARK = 128 };
enum { OFF = 0, KILL = 1, TORN_KILL = 2, FAIL_ONCE = 3, FAIL_ON = 4, SHORT_WRITE = 5 };

static char prefix[4096];
static size_t prefix_len;
static volatile int mode = OFF;
static volatile long act_at, counted, acted;
static int kinds, fault_errno;
static int trace_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------------------------------- control */

/* kinds of operations that count; the at-th of them (from 1) is acted on; trace: a file descriptor, or -1. */
void faults_arm(const char *folder, int how, long at, int kinds_, int errno_, int trace) {
    pthread_mutex_lock(&lock);
    snprintf(prefix, sizeof prefix, "%s", folder);
    prefix_len = strlen(prefix);
    kinds = kinds_, fault_errno = errno_, trace_fd = trace;
    act_at = at, counted = 0, acted = 0, mode = how;
    pthread_mutex_unlock(&lock);
}

void faults_disarm(void) { mode = OFF; }
long faults_counted(void) { return counted; }
long faults_acted(void) { return acted; }

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* ------------------------------------------------------------------------------------------- recording */

struct record { uint32_t kind, path_len, other_len, unused; int64_t offset, size; };

static void put(const void *data, size_t size) {
    const char *from = data;
    while (size > 0) {
        long done = syscall(SYS_write, trace_fd, from, size);
        if (done <= 0) die();
        from += done, size -= done;
    }
}

static void record(int kind, const char *path, const char *other, int64_t offset, const void *data, int64_t size) {
    if (trace_fd < 0) return;
    struct record head = {kind, strlen(path), other ? strlen(other) : 0, 0, offset, size};
    put(&head, sizeof head);
    put(path, head.path_len);
    if (other) put(other, head.other_len);
    if (data && size > 0) put(data, size);
}

/* Says in the record where a call of the user's begins or ends. */
void faults_mark(const char *what) {
    if (mode == OFF || trace_fd < 0) return;
    pthread_mutex_lock(&lock);
    record(MARK, what, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------------- deciding */

static int below(const char *path) {
    return path && strncmp(path, prefix, prefix_len) == 0 && (path[prefix_len] == '/' || path[prefix_len] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlink, link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int path_at(int folder, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, 4096, "%s", name);
    } else {
        char base[4096];
        if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : 0) return 0;
        if (folder != AT_FDCWD) {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            long length = syscall(SYS_readlink, link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        if (snprintf(path, 4096, "%s/%s", base, name) >= 4096) return 0;
    }
    return below(path);
}

enum { GO, REFUSE, CUT, TEAR };

static int decide(int kind) {
    if (!(kinds & kind) || act_at <= 0) return GO;
    long now = ++counted;
    switch (mode) {
    case KILL:
        if (now == act_at) die();
        return GO;
    case TORN_KILL:
        if (now != act_at) return GO;
        if (kind != WRITE) die();
        return TEAR;
    case FAIL_ONCE:
        if (now != act_at) return GO;
        break;
    case FAIL_ON:
        if (now < act_at) return GO;
        break;
    case SHORT_WRITE:
        if (now < act_at) return GO;
        acted++;
        return kind == WRITE && now == act_at ? CUT : REFUSE;
    default:
        return GO;
    }
    acted++;
    return REFUSE;
}

#define REAL(name) \
    static __typeof__(name) *real_##name; \
    if (!real_##name) real_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define REFUSED do { pthread_mutex_unlock(&lock); errno = fault_errno; return -1; } while (0)

/* ------------------------------------------------------------------------------------------- writing */

#define WRITING(call_all, call_half, data, size, offset) \
    char path[4096]; \
    if (mode == OFF || !path_of(fd, path)) return call_all; \
    pthread_mutex_lock(&lock); \
    int what = decide(WRITE); \
    if (what == REFUSE) REFUSED; \
    int64_t at = (offset); \
    ssize_t done = what == GO || (size) < 2 ? call_all : call_half; \
    if (what == TEAR) die(); \
    if (done > 0) record(WRITE, path, NULL, at, data, done); \
    pthread_mutex_unlock(&lock); \
    return done;

static int64_t place(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return lseek(fd, 0, flags >= 0 && (flags & O_APPEND) ? SEEK_END : SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    WRITING(real_write(fd, data, size), real_write(fd, data, size / 2), data, size, place(fd))
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    WRITING(real_pwrite(fd, data, size, offset), real_pwrite(fd, data, size / 2, offset), data, size, offset)
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    WRITING(real_pwrite64(fd, data, size, offset), real_pwrite64(fd, data, size / 2, offset), data, size, offset)
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(write);
    REAL(writev);
    char there[4096];
    if (mode == OFF || !path_of(fd, there)) return real_writev(fd, parts, count);
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    char *data = malloc(size ? size : 1);
    size_t filled = 0;
    for (int i = 0; i < count; i++) memcpy(data + filled, parts[i].iov_base, parts[i].iov_len), filled += parts[i].iov_len;
    ssize_t result = write(fd, data, size);
    int kept = errno;
    free(data);
    errno = kept;
    return result;
}

/* ------------------------------------------------------------------------------------------- the others */

#define ON_FD(kind, call) \
    char path[4096]; \
    if (mode == OFF || !path_of(fd, path)) return call; \
    pthread_mutex_lock(&lock); \
    if (decide(kind) != GO) REFUSED; \
    int done = call; \
    if (done == 0) record(kind, path, NULL, 0, NULL, size); \
    pthread_mutex_unlock(&lock); \
    return done;

int fsync(int fd) {
    REAL(fsync);
    const int64_t size = 0;
    ON_FD(SYNC, real_fsync(fd))
}

int fdatasync(int fd) {
    REAL(fdatasync);
    const int64_t size = 0;
    ON_FD(SYNC, real_fdatasync(fd))
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    ON_FD(TRUNCATE, real_ftruncate(fd, size))
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    ON_FD(TRUNCATE, real_ftruncate64(fd, size))
}

/* SQLite does without when it is refused; the blocks come with the writes then. */
int fallocate(int fd, int flags, off_t offset, off_t size) {
    REAL(fallocate);
    char path[4096];
    if (mode == OFF || !path_of(fd, path)) return real_fallocate(fd, flags, offset, size);
    errno = EOPNOTSUPP;
    return -1;
}

#define ON_PATHS(kind, there, path, other, call) \
    if (mode == OFF || !(there)) return call; \
    pthread_mutex_lock(&lock); \
    if (decide(kind) != GO) REFUSED; \
    int done = call; \
    if (done == 0) record(kind, path, other, 0, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return done;

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    char path[4096], other[4096];
    int there = path_at(from_folder, from, path);
    there |= path_at(to_folder, to, other);
    ON_PATHS(RENAME, there, path, other, real_renameat(from_folder, from, to_folder, to))
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char *name, int flags) {
    REAL(unlinkat);
    char path[4096];
    ON_PATHS(UNLINK, path_at(folder, name, path), path, NULL, real_unlinkat(folder, name, flags))
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t rights) {
    REAL(mkdirat);
    char path[4096];
    ON_PATHS(CREATE, path_at(folder, name, path), path, "/", real_mkdirat(folder, name, rights))
}

int mkdir(const char *name, mode_t rights) { return mkdirat(AT_FDCWD, name, rights); }

static int changes(const char *path, int flags) {
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    if ((flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0) return CREATE;
    if (writes && (flags & O_TRUNC)) return CREATE;
    return writes && (kinds & REOPEN) ? REOPEN : 0;
}

#define OPENING(there, flags, call) \
    int kind = 0; \
    if (mode == OFF || !(there) || !(kind = changes(path, flags))) return call; \
    pthread_mutex_lock(&lock); \
    if (decide(kind) != GO) REFUSED; \
    int done = call; \
    if (done >= 0 && kind == CREATE) record(CREATE, path, NULL, 0, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return done;

#define RIGHTS \
    mode_t rights = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); rights = va_arg(rest, mode_t); va_end(rest); }

int openat(int folder, const char *name, int flags, ...) {
    REAL(openat);
    RIGHTS
    char path[4096];
    OPENING(path_at(folder, name, path), flags, real_openat(folder, name, flags, rights))
}

int openat64(int folder, const char *name, int flags, ...) {
    REAL(openat64);
    RIGHTS
    char path[4096];
    OPENING(path_at(folder, name, path), flags, real_openat64(folder, name, flags, rights))
}

int open(const char *name, int flags, ...) {
    REAL(open);
    RIGHTS
    char path[4096];
    OPENING(path_at(AT_FDCWD, name, path), flags, real_open(name, flags, rights))
}

int open64(const char *name, int flags, ...) {
    REAL(open64);
    RIGHTS
    char path[4096];
    OPENING(path_at(AT_FDCWD, name, path), flags, real_open64(name, flags, rights))
}

static int flags_of(const char *how) {
    int flags = how[0] == 'r' ? (strchr(how, '+') ? O_RDWR : O_RDONLY) : O_WRONLY | O_CREAT;
    return how[0] == 'w' ? flags | O_TRUNC : flags;
}

#undef REFUSED
#define REFUSED do { pthread_mutex_unlock(&lock); errno = fault_errno; return NULL; } while (0)
#define OPENING_FILE(call) \
    char path[4096]; \
    int kind = 0; \
    if (mode == OFF || !path_at(AT_FDCWD, name, path) || !(kind = changes(path, flags_of(how)))) return call; \
    pthread_mutex_lock(&lock); \
    if (decide(kind) != GO) REFUSED; \
    FILE *file = call; \
    if (file && kind == CREATE) record(CREATE, path, NULL, 0, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return file;

FILE *fopen(const char *name, const char *how) {
    REAL(fopen);
    OPENING_FILE(real_fopen(name, how))
}

FILE *fopen64(const char *name, const char *how) {
    REAL(fopen64);
    OPENING_FILE(real_fopen64(name, how))
}
