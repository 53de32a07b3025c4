// SPDX-License-Identifier: Apache-2.0
// A machine in trouble, for one process: its wall clock is wrong, and its disk takes long to sync.
//
// Preloaded. Both numbers lie in a file that is mapped, so that they are set from outside while the
// process runs. Waits are not touched: those that count go by the monotonic clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct trouble {
  int64_t clock_ns; // added to the wall clock
  int64_t sync_ns;  // that fsync() and fdatasync() take longer
};

static struct trouble none;
static volatile struct trouble *now = &none;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MACHINE_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0)
    return;
  void *mapped = mmap(NULL, sizeof(struct trouble), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED)
    now = mapped;
  close(file);
}

static void add(struct timespec *at, int64_t ns) {
  int64_t total = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + ns;
  at->tv_sec = total / 1000000000;
  at->tv_nsec = total % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real)
    real = dlsym(RTLD_NEXT, "clock_gettime");
  int said = real(clock, at);
  if (!said && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    add(at, now->clock_ns);
  return said;
}

time_t time(time_t *to) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to)
    *to = at.tv_sec;
  return at.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  (void)zone;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  to->tv_sec = at.tv_sec;
  to->tv_usec = at.tv_nsec / 1000;
  return 0;
}

static void rest(void) {
  struct timespec left = {now->sync_ns / 1000000000, now->sync_ns % 1000000000};
  while (now->sync_ns && nanosleep(&left, &left))
    ;
}

int fsync(int file) {
  static int (*real)(int);
  if (!real)
    real = dlsym(RTLD_NEXT, "fsync");
  rest();
  return real(file);
}

int fdatasync(int file) {
  static int (*real)(int);
  if (!real)
    real = dlsym(RTLD_NEXT, "fdatasync");
  rest();
  return real(file);
}
