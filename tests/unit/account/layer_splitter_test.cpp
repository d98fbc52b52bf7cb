// Layers by the order of products: sequences of real models, and the account of passes that are split.
#include "core/account/layer_splitter.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "core/account/ledger.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

/// A letter is a product of one size; `{` and `}` are around what comes `times` times.
std::vector<ProductId> products(std::string_view text, int times = 1) {
  std::string all;
  const std::size_t open = text.find('{'), close = text.find('}');
  if (open == std::string_view::npos) {
    all = text;
  } else {
    all = text.substr(0, open);
    for (int i = 0; i < times; ++i) all += text.substr(open + 1, close - open - 1);
    all += text.substr(close + 1);
  }
  std::vector<ProductId> made;
  for (const char letter : all) made.push_back(static_cast<ProductId>(letter));
  return made;
}

std::vector<std::size_t> every(std::size_t first, std::size_t length, std::size_t count) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < count; ++i) begins.push_back(first + i * length);
  return begins;
}

TEST(FindLayers, OfRealModels) {
  EXPECT_EQ(find_layers(products("{qofp}h", 12)), every(0, 4, 12)) << "GPT-2: qkv, o, fc, proj, and the head";
  EXPECT_EQ(find_layers(products("{qkkqggd}h", 32)), every(0, 7, 32)) << "Llama: q and o, k and v, gate and up";
  EXPECT_EQ(find_layers(products("{aaaaggd}h", 2)), every(0, 7, 2)) << "all of one size";
  EXPECT_EQ(find_layers(products("e{qofp}hx", 6)), every(1, 4, 6)) << "an embedding, a projection";
  EXPECT_EQ(find_layers(products("hw{pPfFoOqQ}", 12)), every(2, 8, 12)) << "gradients";
  // torch.compile runs qkv's second gradient after the first ones of the next layer.
  EXPECT_EQ(find_layers(products("efghijklm{gnhijklm}no", 11)).size(), 12u);
  std::vector<std::size_t> begins = every(6, 7, 58);
  begins.insert(begins.begin(), 0);
  EXPECT_EQ(find_layers(products("abcoGD{abcoErd}h", 58)), begins) << "a dense layer before those of experts";
}

TEST(FindLayers, NoneAreClaimedWhereThereAreNone) {
  EXPECT_TRUE(find_layers({}).empty());
  EXPECT_TRUE(find_layers(products("a")).empty());
  EXPECT_TRUE(find_layers(products("abcdefgh")).empty());
  EXPECT_TRUE(find_layers(products("abcdefghiaa")).empty()) << "most products come once";
  EXPECT_TRUE(find_layers(products("qkkqggg{qkkqEErrd}", 58)).empty()) << "no size comes once in each layer";
  EXPECT_TRUE(find_layers(products("{aaaafp}ah", 5)).empty()) << "BERT: its head has a product as q, k, v and o have";
  EXPECT_TRUE(find_layers(products("bx{pyfzaxaxaxax}", 5)).empty()) << "and backward";
  EXPECT_EQ(find_layers(products("{aaaafp}h", 5)), every(0, 6, 5));
  EXPECT_TRUE(find_layers(products("{qofpqofpqofpqofph}", 9)).empty()) << "nine tokens of four layers";
  EXPECT_TRUE(find_layers(products("{qkkqggdqkkqggdqkkqggdh}", 9)).empty()) << "nine tokens of three layers";
}

TEST(FindLayers, RandomBlocksAreFoundWhereTheyBegin) {
  std::mt19937 random(5);
  for (int run = 0; run < 2000; ++run) {
    const auto up_to = [&random](unsigned most) { return static_cast<std::size_t>(random() % (most + 1)); };
    const std::size_t length = 2 + up_to(8), count = 2 + up_to(60), before = up_to(2), behind = up_to(2);
    std::string block;
    for (std::size_t i = 0; i < length; ++i) block += static_cast<char>('a' + i);
    std::ranges::shuffle(block, random);
    const std::string text =
        std::string("XY").substr(0, before) + "{" + block + "}" + std::string("ZW").substr(0, behind);
    const std::vector<ProductId> made = products(text, static_cast<int>(count));
    EXPECT_EQ(find_layers(made), every(before, length, count)) << text << " " << count;
  }
}

/// Passes of three layers on one device, whose records come in any order, with `outside` kernels around the layers.
class SplitPasses : public ::testing::Test {
 protected:
  void pass(const char* region, const char* text, int times, DurationNs gap = 0) {
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(++id);
    slot.opener = static_cast<ThreadSerial>(1);
    slot.region = region_named(region);
    ledger.open(slot, now);
    std::vector<ActivityRecord> records;
    for (const ProductId product : products(text, times)) {
      ActivityRecord record;
      record.correlation = static_cast<CorrelationId>(++launches);
      record.name = names.intern("ampere_bf16_s16816gemm_128x128_tn");
      const bool is_product = raw(product) != '.';  // other kernels
      record.product = is_product ? product : ProductId::kNone;
      record.first_of_product = is_product;
      if (!is_product) record.name = names.intern("vectorized_elementwise_kernel");
      record.begin_ns = now += 1000 + gap;
      record.end_ns = now += 1000;
      records.push_back(record);
    }
    ledger.close(slot, now, std::nullopt);
    std::ranges::shuffle(records, random);
    for (const ActivityRecord& record : records) ledger.add(record, slot.id, true);
    ledger.advance(now += 1000);
  }
  RegionId region_named(std::string_view name) const {
    for (std::size_t i = 0; i < rules.regions().size(); ++i)
      if (rules.regions()[i].name == name) return static_cast<RegionId>(i);
    return RegionId::kNone;
  }
  const RegionSummary& row(const std::string& name) {
    static const RegionSummary none;
    for (const RegionSummary& r : windows.back().regions)
      if (r.region == name) return r;
    return none;
  }

  std::vector<std::string> warnings;
  RegionRules rules{{}, {}, warnings, true};
  Counters counters;
  KernelNames names{counters};
  std::vector<WindowSummary> windows;
  Ledger ledger{
      rules, nullptr, Workload{}, names, counters, LedgerOptions{kOrigin, kWindow, false}, [this](WindowSummary&& w) {
        windows.push_back(std::move(w));
      }};
  std::mt19937 random{7};
  TimeNs now = kOrigin;
  std::uint32_t launches = 0, id = 0;
};

TEST_F(SplitPasses, EachLayerHasItsKernelsAndTimeAndAllAddUp) {
  for (int i = 0; i < 5; ++i) {
    pass("forward", "..{qofp.}.h.", 3);
    pass("backward", "hw{pPfFoOqQ}.", 3);
  }
  ledger.finish(now);
  for (const char* ending : {"", " backward"}) {
    const std::string of = *ending == 0 ? "forward" : "backward";
    const std::uint64_t each = *ending == 0 ? 5 : 8;
    std::uint64_t kernels = row("outside of layers" + std::string(ending)).kernels;
    DurationNs busy = row("outside of layers" + std::string(ending)).busy_ns;
    for (int layer = 0; layer < 3; ++layer) {
      const RegionSummary& r = row("layer " + std::to_string(layer) + ending);
      EXPECT_EQ(r.instances, 5u) << r.region;
      EXPECT_EQ(r.kernels, 5 * each) << layer << ending;
      EXPECT_EQ(r.busy_ns, static_cast<DurationNs>(5 * each * 1000));
      EXPECT_EQ(r.elapsed_ns, static_cast<DurationNs>(5 * each * 2000));
      kernels += r.kernels;
      busy += r.busy_ns;
    }
    EXPECT_EQ(row(of).instances, 5u);
    EXPECT_EQ(row(of).kernels, kernels);
    EXPECT_EQ(row(of).busy_ns, busy);
  }
  EXPECT_EQ(row("outside of layers").kernels, 5u * 5);
  EXPECT_EQ(row("outside of layers backward").kernels, 5u * 3);
}

TEST_F(SplitPasses, NothingIsLostWhereNothingRepeatsOrAPassLastsTooLong) {
  pass("forward", "abcdefg", 1);
  pass("decode", "{qofp}h", 4, kWindow);  // four windows and more
  pass("step", "{qofp}h", 4);             // no pass
  ledger.finish(now);
  EXPECT_EQ(row("forward").kernels, 7u);
  EXPECT_EQ(row("step").kernels, 17u);
  EXPECT_EQ(row("decode").kernels, 17u);
  EXPECT_EQ(row("layer 0").instances, 0u);
  EXPECT_EQ(row("total").kernels, launches);
}

}  // namespace
}  // namespace mfu
