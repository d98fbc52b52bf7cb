// Destructors of thread_local objects where the C library is older than 2.18: libstdc++ hands them to
// __cxa_thread_atexit_impl, which came then. That function, linked in and hidden: it passes on to the C library's own
// where there is one, else keeps a list per thread, which a key of pthread runs when the thread ends, and an exit
// handler for the thread that calls exit(). Unlike the C library's own it does not keep a module loaded while a thread
// still has objects of it: ours are never unloaded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

typedef void (*Destructor)(void*);
typedef int (*Register)(Destructor, void*, void*);

struct Entry {
  Destructor destructor;
  void* object;
  struct Entry* before;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t newest;
static int have_key;
static Register own;

// Newest first, also what a destructor makes meanwhile.
static void run(void* list) {
  struct Entry* entry = list;
  while (entry) {
    pthread_setspecific(newest, entry->before);
    entry->destructor(entry->object);
    free(entry);
    entry = pthread_getspecific(newest);
  }
}

static void run_at_exit(void) { run(pthread_getspecific(newest)); }

static void begin(void) {
#ifndef MFU_WITHOUT_LIBC_THREAD_ATEXIT  // the test's: as if the C library had none
  own = (Register)dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
#endif
  if (!own) have_key = pthread_key_create(&newest, run) == 0 && atexit(run_at_exit) == 0;
}

__attribute__((visibility("hidden"))) int __cxa_thread_atexit_impl(Destructor destructor, void* object, void* module) {
  pthread_once(&once, begin);
  if (own) return own(destructor, object, module);
  struct Entry* entry = have_key ? malloc(sizeof *entry) : NULL;
  if (!entry) return -1;
  entry->destructor = destructor;
  entry->object = object;
  entry->before = pthread_getspecific(newest);
  if (pthread_setspecific(newest, entry) == 0) return 0;
  free(entry);
  return -1;
}
