// NVTX as a client's module calls it: through the function table that we fill, with every form of name, payload and
// handle, before CUDA starts and after.
#include "cuda/nvtx_handler.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/early_ranges.h"
#include "cuda/host_thread.h"
#include "cuda/nvtx_names.h"

namespace mfu {
namespace {

/// One shared object that uses NVTX: its tables, and the function by which an injection library asks for them.
struct Module {
  static constexpr unsigned kSlots = 64;
  NvtxFunctionPointer core[kSlots]{}, core2[kSlots]{};
  NvtxFunctionPointer* core_slots[kSlots + 1]{};
  NvtxFunctionPointer* core2_slots[kSlots + 1]{};
  unsigned core_size = kSlots, core2_size = kSlots;

  Module() {
    for (unsigned i = 0; i < kSlots; ++i) {
      core_slots[i] = &core[i];
      core2_slots[i] = &core2[i];
    }
  }
  static Module*& current() {
    static Module* module = nullptr;
    return module;
  }
  static int NVTX_API table_of(NvtxCallbackModule which, NvtxFunctionTable* table, unsigned* size) {
    if (which != NVTX_CB_MODULE_CORE && which != NVTX_CB_MODULE_CORE2) return 0;
    *table = which == NVTX_CB_MODULE_CORE ? current()->core_slots : current()->core2_slots;
    *size = which == NVTX_CB_MODULE_CORE ? current()->core_size : current()->core2_size;
    return 1;
  }
  static const void* NVTX_API export_table(std::uint32_t id) {
    static const NvtxExportTableCallbacks callbacks{sizeof(NvtxExportTableCallbacks), table_of};
    return id == NVTX_ETID_CALLBACKS ? &callbacks : nullptr;
  }
  void attach() {
    current() = this;
    attach_nvtx(export_table);
  }
  template <typename Function>
  Function of(unsigned index) const {
    return reinterpret_cast<Function>(core[index]);
  }
  template <typename Function>
  Function of2(unsigned index) const {
    return reinterpret_cast<Function>(core2[index]);
  }
};

using PushA = int(NVTX_API*)(const char*);
using PushW = int(NVTX_API*)(const wchar_t*);
using PushEx = int(NVTX_API*)(const nvtxEventAttributes_t*);
using Pop = int(NVTX_API*)();
using StartA = nvtxRangeId_t(NVTX_API*)(const char*);
using End = void(NVTX_API*)(nvtxRangeId_t);
using DomainPushEx = int(NVTX_API*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*);
using DomainPop = int(NVTX_API*)(nvtxDomainHandle_t);
using DomainCreateA = nvtxDomainHandle_t(NVTX_API*)(const char*);
using RegisterA = nvtxStringHandle_t(NVTX_API*)(nvtxDomainHandle_t, const char*);

nvtxEventAttributes_t named(const char* name) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = name;
  return a;
}

/// Keeps what is never freed: threads and clients hold it for as long as the process lives.
template <typename T>
T* keep(T* object) {
  static auto& kept = *new std::vector<const void*>;
  kept.push_back(object);
  return object;
}

class Handler : public testing::Test {
 protected:
  void SetUp() override {
    module_.attach();
    host_switches().live.store(nullptr);
  }
  void TearDown() override { host_switches().live.store(nullptr); }

  /// From now on there are rules. The objects stay: threads keep pointers to what they met.
  void start(const std::vector<RegionRule>& rules = {}) {
    std::vector<std::string> warnings;
    auto* counters = keep(new Counters);
    rules_ = keep(new RegionRules(rules, {}, warnings));
    attribution_ = keep(new Attribution(*counters));
    host_switches().live.store(keep(new HostLinks{attribution_, rules_, keep(new RuleCache(*rules_)), 0}));
  }
  /// Runs on a thread of its own, which has met no earlier test's objects.
  template <typename Work>
  static void on_new_thread(Work work) {
    std::thread(work).join();
  }
  /// The innermost open region of the calling thread: its name and shape; empty: none is open.
  std::string innermost() const {
    const HostThread* thread = host_thread_if_any();
    if (thread == nullptr || thread->state == nullptr) return "";
    const std::uint32_t id = thread->state->innermost.load();
    if (id == 0) return "";
    const InstanceSlot& slot = attribution_->instances().slot(static_cast<InstanceId>(id));
    std::string text = rules_->regions()[raw(slot.region)].name;
    const Shape shape = slot.shape.to_shape();
    if (shape.batch) text += " batch=" + std::to_string(*shape.batch);
    if (shape.seq_len) text += " seq_len=" + std::to_string(*shape.seq_len);
    if (shape.tokens) text += " tokens=" + std::to_string(*shape.tokens);
    return text;
  }

  // What the module's client calls.
  int push_a(const char* name) const { return module_.of<PushA>(NVTX_CBID_CORE_RangePushA)(name); }
  int push_w(const wchar_t* name) const { return module_.of<PushW>(NVTX_CBID_CORE_RangePushW)(name); }
  int push_ex(const nvtxEventAttributes_t* range) const {
    return module_.of<PushEx>(NVTX_CBID_CORE_RangePushEx)(range);
  }
  int pop() const { return module_.of<Pop>(NVTX_CBID_CORE_RangePop)(); }
  nvtxRangeId_t begin(const char* name) const { return module_.of<StartA>(NVTX_CBID_CORE_RangeStartA)(name); }
  void end(nvtxRangeId_t id) const { module_.of<End>(NVTX_CBID_CORE_RangeEnd)(id); }
  nvtxDomainHandle_t create_domain(const char* name) const {
    return module_.of2<DomainCreateA>(NVTX_CBID_CORE2_DomainCreateA)(name);
  }
  int push_in(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) const {
    return module_.of2<DomainPushEx>(NVTX_CBID_CORE2_DomainRangePushEx)(domain, range);
  }
  int pop_in(nvtxDomainHandle_t domain) const { return module_.of2<DomainPop>(NVTX_CBID_CORE2_DomainRangePop)(domain); }

  Module module_;
  RegionRules* rules_ = nullptr;
  Attribution* attribution_ = nullptr;
};

TEST_F(Handler, EveryFormOfANameOpensItsRegion) {
  start();
  on_new_thread([this] {
    EXPECT_EQ(push_a("step batch=2 seq_len=128"), 0);
    EXPECT_EQ(innermost(), "step batch=2 seq_len=128");
    EXPECT_EQ(push_w(L"prefill batch=4 seq_len=7"), 1);
    EXPECT_EQ(innermost(), "prefill batch=4 seq_len=7");
    nvtxEventAttributes_t wide{};
    wide.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    wide.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    wide.message.unicode = L"decode batch=8";
    EXPECT_EQ(push_ex(&wide), 2);
    EXPECT_EQ(innermost(), "decode batch=8");
    const auto text =
        keep(module_.of2<RegisterA>(NVTX_CBID_CORE2_DomainRegisterStringA)(nullptr, "mixed_batch batch=9 seq_len=1"));
    nvtxEventAttributes_t registered{};
    registered.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    registered.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    registered.message.registered = text;
    for (int i = 0; i < 2; ++i) {  // the second time its rule is known
      EXPECT_EQ(push_ex(&registered), 3);
      EXPECT_EQ(innermost(), "mixed batch=9 seq_len=1");
      EXPECT_EQ(pop(), 3);
    }
    EXPECT_EQ(push_a("nothing that is a region"), 3);
    EXPECT_EQ(innermost(), "decode batch=8");
    for (int left = 3; left >= 0; --left) EXPECT_EQ(pop(), left);
    EXPECT_EQ(innermost(), "");
  });
}

TEST_F(Handler, PayloadsOfEveryType) {
  RegionRule rule;
  rule.region = "work";
  rule.match = "payload.*";
  rule.payload = "tokens";
  start({rule});
  on_new_thread([this] {
    for (const int type : {NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, NVTX_PAYLOAD_TYPE_INT64, NVTX_PAYLOAD_TYPE_DOUBLE,
                           NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, NVTX_PAYLOAD_TYPE_INT32, NVTX_PAYLOAD_TYPE_FLOAT}) {
      nvtxEventAttributes_t a = named("payload of a type");
      a.payloadType = type;
      if (type == NVTX_PAYLOAD_TYPE_DOUBLE)
        a.payload.dValue = 1234;
      else if (type == NVTX_PAYLOAD_TYPE_FLOAT)
        a.payload.fValue = 1234;
      else
        a.payload.ullValue = 1234;
      push_ex(&a);
      EXPECT_EQ(innermost(), "work tokens=1234") << type;
      pop();
    }
    nvtxEventAttributes_t none = named("payload of no type");
    push_ex(&none);
    EXPECT_EQ(innermost(), "work");
    pop();
  });
}

/// What a client hands over wrongly, or of another version, opens nothing and closes what it must.
TEST_F(Handler, OddCallsStayBalanced) {
  start();
  on_new_thread([this] {
    EXPECT_EQ(push_a(nullptr), 0);
    EXPECT_EQ(push_w(nullptr), 1);
    EXPECT_EQ(push_ex(nullptr), 2);
    nvtxEventAttributes_t shorter = named("step");
    shorter.size = offsetof(nvtxEventAttributes_t, message);  // of a client before there were messages
    EXPECT_EQ(push_ex(&shorter), 3);
    nvtxEventAttributes_t forged = named("step");
    forged.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    const std::array<char, 1024> of_another_tool{};
    forged.message.registered = reinterpret_cast<nvtxStringHandle_t>(const_cast<char*>(of_another_tool.data()));
    EXPECT_EQ(push_ex(&forged), 4);
    const std::string longest(10'000, 'x');
    EXPECT_EQ(push_a(longest.c_str()), 5);
    EXPECT_EQ(innermost(), "");
    for (int left = 5; left >= 0; --left) EXPECT_EQ(pop(), left);
    const std::uint64_t unmatched = host_counters().get(Counter::kNvtxPopUnmatched);
    pop();  // nothing is open: counted by the attribution, and no more
    EXPECT_EQ(innermost(), "");
    EXPECT_EQ(host_counters().get(Counter::kNvtxPopUnmatched), unmatched);
  });
}

TEST_F(Handler, DomainsAreThoseOfTheirNames) {
  start();
  on_new_thread([this] {
    const nvtxDomainHandle_t ours = create_domain("trainer"), nccl = create_domain("NCCL");
    EXPECT_EQ(create_domain("trainer"), ours);
    EXPECT_STREQ(nvtx_domain_name(domain_of(ours).id), "trainer");
    const nvtxEventAttributes_t step = named("step batch=1 seq_len=2"), other = named("prefill batch=1 seq_len=3");
    EXPECT_EQ(push_in(ours, &step), 0);
    EXPECT_EQ(push_in(nccl, &other), 1) << "a call, and no region";
    EXPECT_EQ(innermost(), "step batch=1 seq_len=2");
    EXPECT_EQ(pop_in(nccl), 1);
    // A handle of another tool is as good as none.
    int foreign = 0;
    EXPECT_EQ(push_in(reinterpret_cast<nvtxDomainHandle_t>(&foreign), &other), 1);
    EXPECT_EQ(innermost(), "prefill batch=1 seq_len=3");
    EXPECT_EQ(pop_in(ours), 1) << "each domain closes its own range";
    EXPECT_EQ(innermost(), "prefill batch=1 seq_len=3");
    EXPECT_EQ(pop_in(reinterpret_cast<nvtxDomainHandle_t>(&foreign)), 0);
    EXPECT_EQ(innermost(), "");
  });
  // There is room for 256; all others are the default domain.
  for (int i = 0; i < 300; ++i) EXPECT_NE(create_domain(("domain " + std::to_string(i)).c_str()), nullptr);
  EXPECT_EQ(&domain_of(create_domain("one more")), &default_domain());
}

TEST_F(Handler, WideNamesAreUtf8OfWholeCharacters) {
  NameBuffer buffer;
  EXPECT_EQ(narrow(L"a\u00e9\u20ac\U0001F600", buffer), "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  for (std::size_t plain = RuleCache::kMaxLength - 5; plain <= RuleCache::kMaxLength; ++plain) {
    const std::string_view cut = narrow((std::wstring(plain, L'x') + L"\U0001F600\u20ac").c_str(), buffer);
    EXPECT_LE(cut.size(), RuleCache::kMaxLength);
    EXPECT_TRUE(cut.size() == plain || cut.size() == plain + 4) << "no part of a character: " << cut.size();
  }
}

/// A client that is older than our headers has shorter tables, and may lack functions.
TEST_F(Handler, ShorterTablesAreFilledAsFarAsTheyGo) {
  Module older;
  older.core_size = NVTX_CBID_CORE_RangePushA + 1;
  older.core2_size = 0;
  older.core_slots[NVTX_CBID_CORE_RangeStartA] = nullptr;
  older.attach();
  EXPECT_NE(older.core[NVTX_CBID_CORE_RangePushA], nullptr);
  EXPECT_EQ(older.core[NVTX_CBID_CORE_RangeStartA], nullptr);
  EXPECT_EQ(older.core[NVTX_CBID_CORE_RangePop], nullptr);
  EXPECT_EQ(older.core2[NVTX_CBID_CORE2_DomainRangePushEx], nullptr);
  attach_nvtx(nullptr);
  attach_nvtx([](std::uint32_t) -> const void* { return nullptr; });
}

/// Ranges that opened before CUDA started are regions from the start on, and end as they should.
TEST_F(Handler, RangesFromBeforeTheStart) {
  on_new_thread([this] {
    EXPECT_EQ(push_a("epoch"), 0);
    EXPECT_EQ(push_a("step batch=3 seq_len=4"), 1);
    for (int depth = 2; depth < 40; ++depth) EXPECT_EQ(push_a("deeper than is kept"), depth);
    for (int left = 39; left >= 2; --left) EXPECT_EQ(pop(), left);
    const nvtxRangeId_t ended = begin("step"), open = begin("decode batch=5 context=6");
    end(ended);
    end(ended);  // twice does no harm
    EXPECT_TRUE(is_early(open));
    start();
    const HostLinks& live = *host_switches().live.load();
    adopt_early_process_ranges(live);
    (void)live_thread(live);
    EXPECT_EQ(innermost(), "step batch=3 seq_len=4");
    InstanceTable& instances = attribution_->instances();
    std::size_t opened = 0;
    for (std::uint64_t n = 0; n < instances.chunks_taken(); ++n)
      for (InstanceTable::Share chunk = instances.chunk(n); chunk.left != 0; ++chunk.next, --chunk.left)
        opened += instances.slot(static_cast<InstanceId>(chunk.next)).state.load() != InstanceSlot::kFree;
    EXPECT_EQ(opened, 2u) << "the range of the thread, and the one of the process";
    const std::uint64_t unknown = host_counters().get(Counter::kNvtxRangeEndUnknown);
    end(open);
    EXPECT_EQ(host_counters().get(Counter::kNvtxRangeEndUnknown), unknown);
    EXPECT_EQ(pop(), 1);
    EXPECT_EQ(innermost(), "");
    EXPECT_EQ(pop(), 0);
  });
}

/// What is kept of them has a bound: then they are followed no more, and nothing else changes.
TEST_F(Handler, MoreRangesBeforeTheStartThanAreKept) {
  std::vector<nvtxRangeId_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(begin("step"));
  EXPECT_TRUE(is_early(ids.front()));
  EXPECT_EQ(ids.back(), kUnfollowedRange);
  for (const nvtxRangeId_t id : ids) end(id);
  EXPECT_TRUE(is_early(begin("step"))) << "places are free again";
}

/// XLA registers a string for each pass over each module that it compiles, and some programs one for each step.
TEST_F(Handler, RegisteredStringsWithoutEndKeepTheirMeaning) {
  start();
  on_new_thread([this] {
    static auto& handles = *new std::set<nvtxStringHandle_t>;  // a program may use a handle until it ends
    const auto open_by_string = [this](const std::string& text) {
      nvtxEventAttributes_t range{};
      range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
      range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
      range.message.registered = module_.of2<RegisterA>(NVTX_CBID_CORE2_DomainRegisterStringA)(nullptr, text.c_str());
      handles.insert(range.message.registered);
      push_ex(&range);
      const std::string region = innermost();
      pop();
      return region;
    };
    for (int i = 0; i < 50'000; ++i) {
      const std::string number = std::to_string(i), batch = std::to_string(i / 10 % 100);
      ASSERT_EQ(open_by_string("XlaPass:#name=fusion,module=jit_init_" + number + "#"), "");
      if (i % 10 != 0) continue;
      ASSERT_EQ(open_by_string("step " + number), "step");
      ASSERT_EQ(open_by_string("decode batch=" + batch + " of " + number), "decode batch=" + batch);
    }
    EXPECT_LE(handles.size(), 2u * kMaxRegisteredStrings + 200);
  });
}

}  // namespace
}  // namespace mfu
