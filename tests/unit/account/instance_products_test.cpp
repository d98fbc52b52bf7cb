#include "core/account/instance_products.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/account/attention_lengths.h"
#include "core/account/product_roles.h"
#include "core/kernels/kernel_names.h"

namespace mfu {
namespace {

std::string flash(bool forward, int width, bool causal, int sm) {
  const std::string traits = "Flash_" + std::string(forward ? "fwd" : "bwd") + "_kernel_traits<" +
                             std::to_string(width) + ", 64, 128, " + std::to_string(sm) +
                             ", false, false, cutlass::bfloat16_t>";
  return "void flash::flash_" + std::string(forward ? "fwd_kernel<" : "bwd_dq_dk_dv_loop_seqk_parallel_kernel<") +
         traits + ", false, " + (causal ? "true" : "false") + ", false, false, true, true, false>(Params)";
}

/// Kernels and grids that a process launches, most of them often.
class LaunchesOfAttention : public testing::Test {
 protected:
  struct Made {
    KernelNameId name;
    std::uint64_t extent;
  };
  LaunchesOfAttention() {
    for (const bool forward : {true, false})
      for (const int width : {64, 128})
        for (const bool causal : {true, false})
          for (const int sm : {80, 90})  // another name that says the same
            kernels_.push_back(names_.intern(flash(forward, width, causal, sm).c_str()));
    kernels_.push_back(names_.intern("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64"));
  }
  Made draw(std::mt19937& random, std::uint32_t lengths) {
    Grid grid;
    grid.x = 1 + random() % lengths;
    grid.y = 1 + random() % 2;
    grid.z = random() % 8 != 0 ? 16 : 12;
    return {kernels_[random() % kernels_.size()], pack(grid)};
  }
  AttentionLaunch unnumbered(const Made& made) { return {roles_.attention(made.name), unpack_grid(made.extent)}; }

  Counters counters_;
  KernelNames names_{counters_};
  ProductRoles roles_{nullptr, names_};
  std::vector<KernelNameId> kernels_;
};

/// However many there are: a launch is what its name and grid say, and those of one number are equal.
TEST_F(LaunchesOfAttention, AreNumberedByWhatTheySay) {
  for (const std::uint32_t lengths : {1u, 4u, 1000u}) {
    std::mt19937 random(lengths);
    std::vector<AttentionLaunch> by_number;
    for (int i = 0; i < 20'000; ++i) {
      const Made made = draw(random, lengths);
      const AttentionLaunch launch = roles_.attention(made.name, made.extent);
      ASSERT_EQ(launch, unnumbered(made));
      ASSERT_EQ(launch.sequences, unnumbered(made).sequences);
      ASSERT_NE(launch.number, 0u);
      if (by_number.size() <= launch.number) by_number.resize(launch.number + 1u);
      AttentionLaunch& first = by_number[launch.number];
      if (first.number == 0) first = launch;
      ASSERT_EQ(first, launch);
    }
    if (lengths > 1) continue;
    // Few enough to be known all the time: equal ones have one number.
    for (const AttentionLaunch& launch : by_number) {
      if (launch.number == 0) continue;
      for (const AttentionLaunch& other : by_number)
        ASSERT_TRUE(other.number == 0 || other.number == launch.number || !(other == launch));
    }
  }
}

/// Numbers only save time: an instance, and the lengths of the process, say the same without them.
TEST_F(LaunchesOfAttention, SayTheSameWithAndWithoutNumbers) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t lengths = seed % 3 == 0 ? 100 : 1 + seed % 4;
    InstanceProducts with, without;
    AttentionLengths lengths_with, lengths_without;
    // What is left of an earlier instance is of no account.
    for (int i = 0; i < 20; ++i) {
      const Made made = draw(random, 5);
      with.add(roles_.attention(made.name, made.extent));
    }
    with.clear();
    ASSERT_EQ(with.attention_forward() + with.attention_backward(), 0u);
    std::uint64_t forward = 0, backward = 0;
    const int count = 1 + static_cast<int>(random() % 60);
    for (int i = 0; i < count; ++i) {
      const Made made = draw(random, lengths);
      const AttentionLaunch launch = unnumbered(made);
      forward += static_cast<std::uint64_t>(launch.kernel.part == AttentionKernel::Part::kForward);
      backward += static_cast<std::uint64_t>(launch.kernel.part == AttentionKernel::Part::kBackward);
      with.add(roles_.attention(made.name, made.extent));
      without.add(launch);
      lengths_with.add(roles_.attention(made.name, made.extent));
      lengths_without.add(launch);
    }
    ASSERT_EQ(with.attention_forward(), forward);
    ASSERT_EQ(with.attention_backward(), backward);
    ASSERT_EQ(without.attention_forward(), forward);
    const auto same = [&](const AttentionWork& a, const AttentionWork& b) {
      // The order of the sum may differ.
      EXPECT_DOUBLE_EQ(a.forward_flop, b.forward_flop) << "seed " << seed;
      EXPECT_DOUBLE_EQ(a.backward_flop, b.backward_flop) << "seed " << seed;
      EXPECT_EQ(a.forward_kernels, b.forward_kernels) << "seed " << seed;
      EXPECT_EQ(a.backward_kernels, b.backward_kernels) << "seed " << seed;
    };
    for (const std::optional<std::int64_t> rows : {std::optional<std::int64_t>(), std::optional<std::int64_t>(256)}) {
      same(with.attention(lengths_with, rows), without.attention(lengths_without, rows));
      same(with.attention(lengths_without, rows), without.attention(lengths_with, rows));
    }
  }
}

}  // namespace
}  // namespace mfu
