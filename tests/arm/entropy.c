// What std::random_device takes from a C library newer than the one that these programs are linked against.
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("hidden"))) int getentropy(void* bytes, size_t count) {
  return syscall(SYS_getrandom, bytes, count, 0) == (long)count ? 0 : -1;
}

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getentropy(&value, sizeof value) != 0) {
  }
  return value;
}
