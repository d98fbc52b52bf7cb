// Every number that the step detector decides by, each with what it separates.
//
// Where a line names no other source, the number comes from a prototype that was tried on the five recorded traces of
// tests/data/traces with two or more marked steps (hta_gpu_user_annotation_step, hta_resnet_ddp2_a100_rank0,
// hta_resnet_ddp_v100_ns, hta_torchrec2_v100_rank1, kineto_resnet50_v100_w0) and on streams made from them. "Programs"
// are those made up at random in tests/unit/detect; a changed number has to keep their figures.
#pragma once

#include <cstdint>

namespace mfu {

struct Thresholds {
  // ---- when two stretches of launches are the same cycle
  double similar = 0.8;  ///< share of launches in common; traces whose streams swap 30 % of their neighbours keep 0.85
  double nearly_equal = 0.96;      ///< in order; above, comparing as multisets cannot add anything that matters
  double multiset_penalty = 0.02;  ///< what equality without order is worth less than equality in order
  double equally_similar = 0.02;   ///< two candidates this close are told apart by what they hold, not by similarity
  double similar_by_name = 0.9;    ///< asked of a cycle without an optimizer, every name weighing alike
  double similar_stretches = 0.5;  ///< of 24 launches, asked where nothing has a name: few names in any order keep 0.1
  std::uint32_t few_names = 5;  ///< in a cycle without any mark or graph; fewer, and copies among them, are a benchmark
  double whole_step = 0.95;     ///< of a step after which something else begins: its end must be certain

  // ---- how much of all that was seen a cycle holds (coverage of the vocabulary)
  double coverage_all = 0.9, coverage_most = 0.8, coverage_more = 0.6, coverage_half = 0.5, coverage_some = 0.4;

  // ---- how often a cycle must have run before it is taken for a step
  std::uint32_t repeats_optimizer_all = 2;      ///< optimizer at the same place, coverage_all
  std::uint32_t repeats_optimizer_more = 3;     ///< coverage_more
  std::uint32_t repeats_optimizer = 4;          ///< less, but copies, or parts that repeat inside
  std::uint32_t repeats_optimizer_alone = 140;  ///< less, and neither: an optimizer's own loop looks like this
  std::uint32_t repeats_stack_all = 3;          ///< a stack of layers or a loss, coverage_all
  std::uint32_t repeats_stack_most = 5;         ///< coverage_most
  std::uint32_t repeats_stack_half = 10;        ///< coverage_half; few accumulate more than eight passes, so that
                                                ///< nine in a row are steps
  std::uint32_t repeats_stack = 200;            ///< less
  std::uint32_t repeats_group_of_layers = 24;   ///< repeats inside little (see `stack`), long
  std::uint32_t repeats_short = 64;             ///< the same, shorter than long_period
  std::uint32_t repeats_copies = 40;            ///< nothing repeats inside, but it copies to or from the host
  std::uint32_t long_period = 256;              ///< [launch]
  std::uint32_t few_repeats = 4;                ///< where more are asked, foreign work in between breaks the count
  double structured = 0.3;  ///< share of a cycle's 8-grams that occur in it more than once: it has parts
  double stack = 0.8;       ///< the same: it is a stack of layers, not a group of a few

  // ---- search
  std::uint32_t search_every = 1024;    ///< [launch]; 64 gave the same periods
  std::uint32_t small_window = 4096;    ///< [launch]
  std::uint32_t middle_window = 16384;  ///< [launch]
  std::uint32_t seldom = 32;            ///< what is in vain is searched once in this many times its launches
  std::uint32_t quiet = 8 * 1024;       ///< without a new name for so long, the program does one thing [launch]
  std::uint32_t shortest_period = 4;    ///< [launch]
  double longer_while_followed = 1.9;   ///< a cycle that takes the place of one being followed has two turns of it
  std::uint32_t optimizer_free = 11;    ///< in 20ths of a cycle: one update leaves more than half of it free of updates

  // ---- boundaries and following
  std::uint32_t burst = 12;       ///< launches this close to each other belong together [launch]
  double agreement_least = 0.6;   ///< of the surroundings of a boundary with those of the reference, at least
  double agreement_most = 0.85;   ///< never asked for more than this: shapes vary
  double agreement_share = 0.85;  ///< of what the reference's own two ends share
  double lost_periods = 4;        ///< without a step for so many periods, the cycle is lost

  std::uint32_t before_first_product = 48;  ///< launches of a forward pass before its first matrix product, at most
  std::uint32_t log_line = 16;              ///< launches that a line of the log takes at most, with its mean over ranks
  std::uint32_t stray_launches = 3;         ///< in a gap between two passes, of other streams or by chance
  std::uint32_t seldom_foreign = 12;        ///< other work after more than one in so many passes may be an update
  std::uint32_t passes_without_update = 16;  ///< passes to see where no update shows: few accumulate more than eight
  std::uint32_t steps_of_break = 8;  ///< evaluation lasts as long as a few steps; a server that takes over, longer

  // ---- serving
  std::uint32_t serving_iterations = 6;          ///< with samples, before they are reported
  std::uint32_t iterations_after_training = 64;  ///< that take batches in, as evaluation does, before training is over
  std::uint32_t host_turns = 12;                 ///< without: copies in and out are weaker evidence
  double serving_recurring = 0.6;                ///< share of iterations of a make-up that was seen before
  double serving_clean = 0.93;      ///< share of iterations with copies in once at most: an evaluation in a training
                                    ///< loop whose names say nothing leaves one of ten that holds whole steps
  double more_sequences = 1.3;      ///< rows of a decode over those of the one before, at most,
  std::uint32_t few_sequences = 4;  ///< and so many more: requests join one by one
  double serving_graphed = 0.3;     ///< share of iterations that are a graph, above which the others prefill
  double serving_fed = 1.0 / 3;     ///< share of iterations that take a batch in, at most, where the others decode
  double host_turns_uniform = 0.9;  ///< share of turns of the host like the one before, for medium confidence

  // ---- confidence
  double high_exact = 0.98;  ///< launches of equal names, step against step
  double high_operations =
      0.995;  ///< the same by operation, whatever their shapes: one lost record of a hundred is less
  double high_whatever_shapes =
      0.9;                        ///< with kernels that a library chooses by shape, of which some run one more or less
  double high_same_length = 0.6;  ///< share of steps of the usual length
  double medium_exact = 0.9, medium_coverage = 0.6, medium_same_length = 0.4;
  double serving_high = 0.95;             ///< share of iterations of a make-up that was seen before
  std::uint32_t serving_high_ended = 32;  ///< iterations
};
inline constexpr Thresholds kThresholds;

}  // namespace mfu
