// The simulated libnccl: one kernel per collective, and a real rendezvous between the processes of one machine through
// a file in /dev/shm. A collective's kernel ends when the last rank's would have begun plus the time of the transfer,
// so a rank that comes late is seen by the others as it is on hardware. The calling thread waits until every rank has
// called; the real library enqueues and returns. Small contents are really moved (and sums of them really taken),
// because programs exchange sizes and objects this way; of what is larger than kMostBytes only the time passes.
//
// Signatures follow nccl.h; enumerations are passed as their values.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/frameworks/simulated/kernel.h"
#include "tools/simgpu/driver_lookup.h"

namespace {

using namespace mfu::sim;

constexpr int kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInternalError = 3, kInvalidArgument = 4;
constexpr int kMostRanks = 16;
constexpr std::size_t kMostBytes = 64 << 10;
constexpr double kBytesPerSecond = 350e9;  // NVLink of an H100, for a ring
constexpr double kSetupNs = 9000;
constexpr std::int64_t kPatienceNs = 180'000'000'000;  // a rank that never comes is an error, not a hang

struct UniqueId {
  char bytes[128];
};

/// The message of a rank to the others in one call. Two of them, used in turn.
struct Letter {
  std::int64_t start_ns;
  std::uint64_t bytes;
  unsigned char data[kMostBytes];
};
/// A message to one peer.
struct Mailbox {
  std::atomic<std::uint64_t> sent, taken;
  Letter letter;
};
struct Shared {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint64_t> arrived[kMostRanks];  ///< how many calls each rank has made
  Letter letters[2][kMostRanks];
  Mailbox mail[kMostRanks][kMostRanks];  ///< [from][to]
};

struct Communicator {
  std::string path;
  Shared* shared = nullptr;
  int rank = 0, ranks = 1;
  std::uint64_t calls = 0, splits = 0;
  std::uint64_t sent[kMostRanks] = {}, taken[kMostRanks] = {};
};

enum class Kind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kRecv
};

struct Operation {
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  int type, reduction, peer;  ///< peer: root of rooted collectives
  Communicator* communicator;
  CUstream stream;
};

struct Group {
  int depth = 0;
  std::vector<Operation> waiting;
};
thread_local Group group;

/// One kernel that takes `ns`, and lasts at least until `until_ns`.
int launch(const std::string& name, double ns, std::int64_t until_ns, CUstream stream) {
  auto duration = static_cast<std::uint32_t>(std::min(ns, 4e9));
  void* params[] = {&duration, &until_ns};
  return launch_by_name(name, "ns_param=0 until_param=1", 16, 544, params, stream) == CUDA_SUCCESS
             ? kSuccess
             : kUnhandledCudaError;
}

// Types ----------------------------------------------------------------------------------------------------------

constexpr const char* kReductions[] = {"Sum", "Prod", "Max", "Min", "SumPostDiv"};

template <typename T>
void reduce_as(unsigned char* into, const unsigned char* other, std::size_t count, int reduction) {
  for (std::size_t i = 0; i < count; ++i) {
    T a{}, b{};
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, other + i * sizeof(T), sizeof(T));
    a = reduction == 1   ? static_cast<T>(a * b)
        : reduction == 2 ? std::max(a, b)
        : reduction == 3 ? std::min(a, b)
                         : static_cast<T>(a + b);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

struct TypeInfo {
  const char* name;
  std::size_t bytes;
  /// nullptr: small floats keep what they hold, since values of kernels are zeros anyway.
  void (*reduce)(unsigned char* into, const unsigned char* other, std::size_t count, int reduction);
};
constexpr TypeInfo kTypes[] = {
    {"i8", 1, reduce_as<std::int8_t>},
    {"u8", 1, reduce_as<std::uint8_t>},
    {"i32", 4, reduce_as<std::int32_t>},
    {"u32", 4, reduce_as<std::uint32_t>},
    {"i64", 8, reduce_as<std::int64_t>},
    {"u64", 8, reduce_as<std::uint64_t>},
    {"f16", 2, nullptr},
    {"f32", 4, reduce_as<float>},
    {"f64", 8, reduce_as<double>},
    {"bf16", 2, nullptr},
    {"f8e4m3", 1, nullptr},
    {"f8e5m2", 1, nullptr},
};

bool known(int type) { return type >= 0 && type < static_cast<int>(std::size(kTypes)); }

// The rendezvous -------------------------------------------------------------------------------------------------

template <typename Done>
bool wait_until(Done&& done) {
  const std::int64_t give_up = realtime_ns() + kPatienceNs;
  for (int turn = 0; !done(); ++turn) {
    if (turn < 50) {
      sched_yield();
      continue;
    }
    const timespec nap{0, turn < 500 ? 20'000 : 500'000};
    nanosleep(&nap, nullptr);
    if (realtime_ns() > give_up) return false;
  }
  return true;
}

/// Leaves `bytes` for the others and waits for theirs. Returns the letters, one per rank; nullptr where one never came.
const Letter* exchange(Communicator& c, const void* mine, std::size_t bytes, std::int64_t start_ns) {
  Letter(&letters)[kMostRanks] = c.shared->letters[c.calls % 2];
  Letter& own = letters[c.rank];
  own.start_ns = start_ns;
  own.bytes = bytes;
  if (mine != nullptr && bytes <= kMostBytes) std::memcpy(own.data, mine, bytes);
  const std::uint64_t call = ++c.calls;
  // A rank that is here has read all messages of the call before, so the next call may write its own.
  c.shared->arrived[c.rank].store(call, std::memory_order_release);
  const bool all = wait_until([&] {
    for (int r = 0; r < c.ranks; ++r) {
      if (c.shared->arrived[r].load(std::memory_order_acquire) < call) return false;
    }
    return true;
  });
  return all ? letters : nullptr;
}

int join(Communicator** out, const std::string& path, int ranks, int rank) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return kInvalidArgument;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return kSystemError;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return kSystemError;
  auto* c = new Communicator;
  c->path = path;
  c->shared = static_cast<Shared*>(memory);
  c->rank = rank;
  c->ranks = ranks;
  c->shared->joined.fetch_add(1);
  const auto everybody = static_cast<std::uint32_t>(ranks);
  if (!wait_until([&] { return c->shared->joined.load() >= everybody; })) return kInternalError;
  if (rank == 0) unlink(path.c_str());  // mapped by everybody: gone with the last process, however that ends
  *out = c;
  return kSuccess;
}

std::string path_of(const UniqueId& id) {
  std::string path = "/dev/shm/simgpu-nccl-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(id.bytes[i]));
    path += hex;
  }
  return path;
}

// Operations -----------------------------------------------------------------------------------------------------

bool contents() { return driver_api().driver != nullptr && driver_api().driver->settings->memory_contents; }

std::string kernel_name(const Operation& op) {
  const bool reduces = op.kind == Kind::kAllReduce || op.kind == Kind::kReduce || op.kind == Kind::kReduceScatter;
  const char* words[] = {"AllReduce", "Reduce",   "Broadcast", "AllGather", "ReduceScatter",
                         "SendRecv",  "SendRecv", "SendRecv",  "SendRecv",  "SendRecv"};
  std::string name = std::string("ncclDevKernel_") + words[static_cast<int>(op.kind)];
  if (reduces) {
    const int reduction =
        op.reduction >= 0 && op.reduction < static_cast<int>(std::size(kReductions)) ? op.reduction : 0;
    name += std::string("_") + kReductions[reduction] + "_" + kTypes[op.type].name;
  }
  if (std::string(words[static_cast<int>(op.kind)]) != "SendRecv") name += "_RING_LL";
  return "_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE";
}

/// Bytes that this rank hands to the others, and gets back from all of them.
struct Sizes {
  std::size_t in = 0, out = 0;
  double traffic = 0;
};
Sizes sizes_of(const Operation& op) {
  const std::size_t bytes = op.count * kTypes[op.type].bytes;
  const auto n = static_cast<std::size_t>(op.communicator->ranks);
  const auto b = static_cast<double>(bytes);
  const double others = static_cast<double>(n - 1) / static_cast<double>(n);
  switch (op.kind) {
    case Kind::kAllReduce:
      return {bytes, bytes, 2 * b * others};
    case Kind::kAllGather:
    case Kind::kGather:
      return {bytes, bytes * n, b * static_cast<double>(n - 1)};
    case Kind::kReduceScatter:
    case Kind::kScatter:
    case Kind::kAllToAll:
      return {bytes * n, op.kind == Kind::kAllToAll ? bytes * n : bytes, b * static_cast<double>(n - 1)};
    default:
      return {bytes, bytes, b};
  }
}

/// Puts together on this rank what everybody left.
void deliver(const Operation& op, const Letter* letters, const Sizes& sizes) {
  auto* to = static_cast<unsigned char*>(op.to);
  const std::size_t piece = op.count * kTypes[op.type].bytes;
  const int ranks = op.communicator->ranks, rank = op.communicator->rank;
  const auto at = [&](int r) { return letters[r].data; };
  switch (op.kind) {
    case Kind::kBroadcast:
      std::memcpy(to, at(op.peer), piece);
      return;
    case Kind::kAllGather:
    case Kind::kGather:
      if (op.kind == Kind::kGather && rank != op.peer) return;
      for (int r = 0; r < ranks; ++r) std::memcpy(to + static_cast<std::size_t>(r) * piece, at(r), piece);
      return;
    case Kind::kAllToAll:
      for (int r = 0; r < ranks; ++r) {
        std::memcpy(to + static_cast<std::size_t>(r) * piece, at(r) + static_cast<std::size_t>(rank) * piece, piece);
      }
      return;
    case Kind::kScatter:
      std::memcpy(to, at(op.peer) + static_cast<std::size_t>(rank) * piece, piece);
      return;
    default:
      break;
  }
  if (op.kind == Kind::kReduce && rank != op.peer) return;
  const std::size_t offset = op.kind == Kind::kReduceScatter ? static_cast<std::size_t>(rank) * piece : 0;
  std::vector<unsigned char> sum(at(0) + offset, at(0) + offset + sizes.out);
  if (const auto reduce = kTypes[op.type].reduce; reduce != nullptr)
    for (int r = 1; r < ranks; ++r) reduce(sum.data(), at(r) + offset, op.count, op.reduction);
  std::memcpy(to, sum.data(), sum.size());
}

int run_collective(const Operation& op) {
  Communicator& c = *op.communicator;
  const Sizes sizes = sizes_of(op);
  const double ns = kSetupNs + sizes.traffic / kBytesPerSecond * 1e9;
  std::int64_t until = 0;
  if (!is_capturing(op.stream)) {
    const bool moves = contents() && sizes.in <= kMostBytes;
    const Letter* letters =
        exchange(c, moves ? op.from : nullptr, sizes.in, driver_api().driver->start_of_next(op.stream));
    if (letters == nullptr) return kInternalError;
    for (int r = 0; r < c.ranks; ++r) until = std::max(until, letters[r].start_ns);
    until += static_cast<std::int64_t>(ns);
    if (moves && op.to != nullptr) deliver(op, letters, sizes);
  }
  return launch(kernel_name(op), ns, until, op.stream);
}

void send(const Operation& op) {
  Communicator& c = *op.communicator;
  Mailbox& box = c.shared->mail[c.rank][op.peer];
  const std::size_t bytes = op.count * kTypes[op.type].bytes;
  wait_until([&] { return box.taken.load(std::memory_order_acquire) == c.sent[op.peer]; });
  box.letter.start_ns = driver_api().driver->start_of_next(op.stream);
  box.letter.bytes = bytes;
  if (contents() && bytes <= kMostBytes) std::memcpy(box.letter.data, op.from, bytes);
  box.sent.store(++c.sent[op.peer], std::memory_order_release);
}

std::int64_t receive(const Operation& op) {
  Communicator& c = *op.communicator;
  Mailbox& box = c.shared->mail[op.peer][c.rank];
  const std::uint64_t number = ++c.taken[op.peer];
  if (!wait_until([&] { return box.sent.load(std::memory_order_acquire) >= number; })) return 0;
  const std::size_t bytes = op.count * kTypes[op.type].bytes;
  if (contents() && bytes <= kMostBytes)
    std::memcpy(op.to, box.letter.data, std::min<std::size_t>(bytes, box.letter.bytes));
  const std::int64_t start = box.letter.start_ns;
  box.taken.store(number, std::memory_order_release);
  return start;
}

/// The calls gathered in a group: first all sends, so that two ranks that send to each other both get on; then one
/// kernel.
int run_messages(const std::vector<Operation>& all) {
  double ns = 0;
  std::int64_t start = 0;
  for (const Operation& op : all) {
    if (op.kind == Kind::kSend) send(op);
    ns += sizes_of(op).traffic / kBytesPerSecond * 1e9;
  }
  for (const Operation& op : all) {
    if (op.kind == Kind::kRecv) start = std::max(start, receive(op));
  }
  ns += kSetupNs;
  const std::int64_t until = start == 0 ? 0 : start + static_cast<std::int64_t>(ns);
  return launch(kernel_name(all.front()), ns, until, all.front().stream);
}

int run_all(const std::vector<Operation>& all) {
  std::vector<Operation> messages;
  for (const Operation& op : all) {
    if (op.kind == Kind::kSend || op.kind == Kind::kRecv) {
      messages.push_back(op);
    } else if (const int result = run_collective(op); result != kSuccess) {
      return result;
    }
  }
  return messages.empty() ? kSuccess : run_messages(messages);
}

int submit(const Operation& op) {
  if (op.communicator == nullptr || !known(op.type) || driver_api().driver == nullptr) return kInvalidArgument;
  if (op.peer < 0 || op.peer >= op.communicator->ranks) return kInvalidArgument;
  if (group.depth == 0) return run_all({op});
  group.waiting.push_back(op);
  return kSuccess;
}

}  // namespace

// Communicators --------------------------------------------------------------------------------------------------

SIM_EXPORT int ncclGetVersion(int* version) {
  *version = 22807;
  return kSuccess;
}
SIM_EXPORT int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  return getrandom(id->bytes, 16, 0) == 16 ? kSuccess : kSystemError;
}
SIM_EXPORT int ncclCommInitRank(Communicator** out, int ranks, UniqueId id, int rank) {
  return join(out, path_of(id), ranks, rank);
}
SIM_EXPORT int ncclCommInitRankConfig(Communicator** out, int ranks, UniqueId id, int rank, void*) {
  return join(out, path_of(id), ranks, rank);
}
SIM_EXPORT int ncclCommInitRankScalable(Communicator** out, int ranks, int rank, int, const UniqueId* ids, void*) {
  return join(out, path_of(ids[0]), ranks, rank);
}
SIM_EXPORT int ncclCommSplit(Communicator* parent, int color, int key, Communicator** out, void*) {
  const int mine[2] = {color, key};
  const Letter* letters = exchange(*parent, mine, sizeof mine, 0);
  if (letters == nullptr) return kInternalError;
  std::vector<std::pair<int, int>> members;  // (key, rank) of those with this color
  for (int r = 0; r < parent->ranks; ++r) {
    int theirs[2];
    std::memcpy(theirs, letters[r].data, sizeof theirs);
    if (theirs[0] == color) members.emplace_back(theirs[1], r);
  }
  const std::uint64_t split = ++parent->splits;
  if (color < 0) {  // NCCL_SPLIT_NOCOLOR
    *out = nullptr;
    return kSuccess;
  }
  std::sort(members.begin(), members.end());
  int rank = 0;
  while (members[static_cast<std::size_t>(rank)].second != parent->rank) ++rank;
  const std::string path = parent->path + "-" + std::to_string(split) + "." + std::to_string(color);
  return join(out, path, static_cast<int>(members.size()), rank);
}
/// Kept until the process ends: PyTorch's watchdog may still ask after a communicator that another thread has
/// destroyed.
SIM_EXPORT int ncclCommDestroy(Communicator*) { return kSuccess; }
SIM_EXPORT int ncclCommAbort(Communicator*) { return kSuccess; }
SIM_EXPORT int ncclCommFinalize(Communicator*) { return kSuccess; }
SIM_EXPORT int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
SIM_EXPORT int ncclCommCount(const Communicator* c, int* count) {
  *count = c->ranks;
  return kSuccess;
}
SIM_EXPORT int ncclCommUserRank(const Communicator* c, int* rank) {
  *rank = c->rank;
  return kSuccess;
}
SIM_EXPORT int ncclCommRegister(const Communicator*, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return kSuccess;
}
SIM_EXPORT int ncclCommDeregister(const Communicator*, void*) { return kSuccess; }
SIM_EXPORT int ncclRedOpCreatePreMulSum(int* op, void*, int, int, Communicator*) {
  *op = 0;  // the factor is not applied
  return kSuccess;
}
SIM_EXPORT int ncclRedOpDestroy(int, Communicator*) { return kSuccess; }
SIM_EXPORT int ncclMemAlloc(void** p, std::size_t bytes) {
  return DRIVER(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(p), bytes) == CUDA_SUCCESS ? kSuccess : kUnhandledCudaError;
}
SIM_EXPORT int ncclMemFree(void* p) {
  return DRIVER(cuMemFree)(reinterpret_cast<CUdeviceptr>(p)) == CUDA_SUCCESS ? kSuccess : kUnhandledCudaError;
}
SIM_EXPORT const char* ncclGetErrorString(int error) {
  return error == kSuccess         ? "no error"
         : error == kInternalError ? "a rank never came (simulated NCCL)"
                                   : "an error of the simulated NCCL";
}
SIM_EXPORT const char* ncclGetLastError(Communicator*) { return ""; }

// Collectives ----------------------------------------------------------------------------------------------------

SIM_EXPORT int ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}
SIM_EXPORT int ncclGroupEnd() {
  if (group.depth == 0) return kInvalidArgument;
  if (--group.depth > 0) return kSuccess;
  const std::vector<Operation> all = std::move(group.waiting);
  group.waiting.clear();
  return run_all(all);
}
SIM_EXPORT int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int reduction, Communicator* c,
                             CUstream stream) {
  return submit({Kind::kAllReduce, from, to, count, type, reduction, 0, c, stream});
}
SIM_EXPORT int ncclReduce(const void* from, void* to, std::size_t count, int type, int reduction, int root,
                          Communicator* c, CUstream stream) {
  return submit({Kind::kReduce, from, to, count, type, reduction, root, c, stream});
}
SIM_EXPORT int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Communicator* c,
                             CUstream stream) {
  return submit({Kind::kBroadcast, from, to, count, type, 0, root, c, stream});
}
SIM_EXPORT int ncclBcast(void* buffer, std::size_t count, int type, int root, Communicator* c, CUstream stream) {
  return submit({Kind::kBroadcast, buffer, buffer, count, type, 0, root, c, stream});
}
SIM_EXPORT int ncclAllGather(const void* from, void* to, std::size_t count, int type, Communicator* c,
                             CUstream stream) {
  return submit({Kind::kAllGather, from, to, count, type, 0, 0, c, stream});
}
SIM_EXPORT int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int reduction,
                                 Communicator* c, CUstream stream) {
  return submit({Kind::kReduceScatter, from, to, count, type, reduction, 0, c, stream});
}
SIM_EXPORT int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, Communicator* c, CUstream stream) {
  return submit({Kind::kAllToAll, from, to, count, type, 0, 0, c, stream});
}
SIM_EXPORT int ncclGather(const void* from, void* to, std::size_t count, int type, int root, Communicator* c,
                          CUstream stream) {
  return submit({Kind::kGather, from, to, count, type, 0, root, c, stream});
}
SIM_EXPORT int ncclScatter(const void* from, void* to, std::size_t count, int type, int root, Communicator* c,
                           CUstream stream) {
  return submit({Kind::kScatter, from, to, count, type, 0, root, c, stream});
}
SIM_EXPORT int ncclSend(const void* from, std::size_t count, int type, int peer, Communicator* c, CUstream stream) {
  return submit({Kind::kSend, from, nullptr, count, type, 0, peer, c, stream});
}
SIM_EXPORT int ncclRecv(void* to, std::size_t count, int type, int peer, Communicator* c, CUstream stream) {
  return submit({Kind::kRecv, nullptr, to, count, type, 0, peer, c, stream});
}
