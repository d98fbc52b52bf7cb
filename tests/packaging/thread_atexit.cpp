// thread_local objects are destroyed newest first when their thread ends, those that a destructor makes as well, and
// those of the thread that ends the program before its static ones. Linked with tools/wheel/thread_atexit.c by
// tests/packaging/check old-glibc.
#include <cstdio>
#include <string>
#include <thread>

namespace {

struct Noted {
  explicit Noted(std::string name) : name_(std::move(name)) {}
  ~Noted();
  std::string name_;
};

Noted& late() {
  thread_local Noted noted("made by a destructor");
  return noted;
}

Noted::~Noted() {
  std::printf("%s\n", name_.c_str());
  if (name_ == "second") (void)late();
}

void use(const char* first, const char* second) {
  thread_local Noted one{first};
  thread_local Noted two{second};
}

Noted of_the_program("static");

}  // namespace

int main() {
  std::thread([] { use("first", "second"); }).join();
  std::thread([] {}).join();
  use("first of main", "second of main");
  return 0;
}
