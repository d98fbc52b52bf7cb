// A program that starts CUDA: host FILE CALLS. Opens the driver library FILE and calls cuInit(0) CALLS times; prints a line each.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* driver;

// Registered after cuInit, as the library registers its own: it runs before the driver's handlers.
static void at_exit(void) {
  int version = 0;
  int (*get)(int*) = (int (*)(int*))dlsym(driver, "cuDriverGetVersion");
  printf("at exit: cuDriverGetVersion %d\n", get ? get(&version) : -1);
}

int main(int argc, char** argv) {
  (void)argc;
  driver = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  if (!init) {
    printf("no driver: %s\n", dlerror());
    return 1;
  }
  for (int i = 0; i < atoi(argv[2]); ++i) printf("cuInit %d\n", init(0));
  atexit(at_exit);
  puts("main returns");
  return 3;
}
