// An injected library that says on stderr what happens to it. WITNESS_RETURNS: what InitializeInjection returns.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int call(const char* name, void* argument) {
  int (*function)(void*) = (int (*)(void*))dlsym(RTLD_DEFAULT, name);
  return function ? function(argument) : -1;
}

static void at_exit(void) {
  int version = 0;
  fprintf(stderr, "atexit: version %d\n", call("cuDriverGetVersion", &version));
}

__attribute__((constructor)) static void load(void) { fputs("loaded\n", stderr); }
__attribute__((destructor)) static void unload(void) { fputs("unloaded\n", stderr); }

__attribute__((visibility("default"))) int InitializeInjection(void) {
  int version = 0, count = 0;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
  fprintf(stderr, "initialize: version %d, count %d, nested cuInit %d\n", call("cuDriverGetVersion", &version),
          call("cuDeviceGetCount", &count), init ? init(0) : -1);
  if (!getenv("WITNESS_RETURNS")) atexit(at_exit);
  return getenv("WITNESS_RETURNS") ? atoi(getenv("WITNESS_RETURNS")) : 1;
}
