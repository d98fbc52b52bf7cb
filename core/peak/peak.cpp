#include "core/peak/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/edit_distance.h"
#include "core/peak/peak_table.h"

namespace mfu {
namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_word(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool same_at(std::string_view text, std::size_t at, std::string_view piece) noexcept {
  return at <= text.size() && std::ranges::equal(text.substr(at, piece.size()), piece, {}, lower, lower);
}

std::size_t find_folded(std::string_view text, std::string_view piece, std::size_t from = 0) noexcept {
  for (std::size_t at = from; at + piece.size() <= text.size(); ++at)
    if (same_at(text, at, piece)) return at;
  return std::string_view::npos;
}

/// \param piece one of the row's `match`
bool matches(const PeakRow& row, std::string_view piece, std::string_view name) noexcept {
  const bool name_ends = piece.ends_with('$'), word_ends = !piece.ends_with('*');
  if (name_ends || !word_ends) piece.remove_suffix(1);
  for (std::size_t at = find_folded(name, piece); at != std::string_view::npos; at = find_folded(name, piece, at + 1)) {
    const std::size_t end = at + piece.size();
    if (at > 0 && is_word(name[at - 1]) && is_word(name[at])) continue;
    if (word_ends && end < name.size() && is_word(name[end - 1]) && is_word(name[end])) continue;
    if (name_ends && end != name.size()) continue;
    if (std::none_of(row.not_before.begin(), row.not_before.end(),
                     [&](std::string_view next) { return same_at(name, end, next); }))
      return true;
  }
  return false;
}

std::string_view without_vendor(std::string_view name) noexcept {
  for (std::string_view vendor : {std::string_view("NVIDIA "), std::string_view("Tesla ")})
    if (same_at(name, 0, vendor)) name.remove_prefix(vendor.size());
  return name;
}

/// `MIG 3g.20gb` inside a name: 3 compute slices, 20 GB.
struct MigProfile {
  bool is_mig = false;
  std::uint32_t slices = 0;
  std::uint32_t memory_gb = 0;
};

MigProfile mig_profile(std::string_view name) noexcept {
  MigProfile mig;
  const std::size_t at = find_folded(name, " MIG ");
  if (at == std::string_view::npos) return mig;
  mig.is_mig = true;
  std::string_view rest = name.substr(at + 5);
  const auto number = [&rest]() {
    std::uint32_t value = 0;
    while (!rest.empty() && rest.front() >= '0' && rest.front() <= '9' && value < 100000) {
      value = value * 10 + static_cast<std::uint32_t>(rest.front() - '0');
      rest.remove_prefix(1);
    }
    return value;
  };
  const std::uint32_t slices = number();
  if (slices == 0) return mig;
  if (!same_at(rest, 0, "g.") && !same_at(rest, 0, "c.")) return mig;
  rest.remove_prefix(2);
  if (same_at(rest, 1, "g.")) {  // `1c.3g.20gb`: a compute instance of 1 slice in a 3-slice GPU instance
    rest.remove_prefix(3);
  }
  mig.slices = slices;
  mig.memory_gb = number();
  return mig;
}

/// SMs per MIG compute slice (NVIDIA MIG user guide, profile tables): 14 on GA100, 16 on GH100.
std::uint32_t sms_of_slices(const PeakRow& row, std::uint32_t slices) noexcept {
  const std::uint32_t most = row.cc_major == 8 && row.sm_count < 100 ? 4 : 7;  // A30 has four slices
  const std::uint32_t per_slice = row.cc_major == 8 ? 14 : row.cc_major == 9 ? 16 : row.sm_count / most;
  if (slices >= most && row.cc_major >= 9) return row.sm_count;
  return std::min(row.sm_count, slices * per_slice);
}

PeakColumn column_of(DType dtype) noexcept {
  using C = PeakColumn;
  // In the order of DType. What is stored in int4 and nf4 is multiplied in 16 bit.
  constexpr std::array<PeakColumn, kDTypes> kColumns = {C::kFp64Tensor, C::kFp32, C::kTf32, C::kBf16, C::kFp16,
                                                        C::kFp8,        C::kInt8, C::kFp6,  C::kFp4,  C::kFp16,
                                                        C::kFp4,        C::kFp4,  C::kFp16};
  return kColumns[static_cast<std::size_t>(dtype)];
}

double rate_of(const PeakRates& rates, PeakColumn column) noexcept { return rates[static_cast<std::size_t>(column)]; }

/// The rate of `dtype`, or of the dtype that kernels of this device then compute in.
struct Rate {
  double value = 0;
  DType dtype = DType::kBf16;
};

Rate rate_for(const PeakRates& rates, DType dtype, bool has_bf16_tensor) noexcept {
  if (dtype == DType::kInt4 || dtype == DType::kNf4) dtype = has_bf16_tensor ? DType::kBf16 : DType::kFp16;
  if (dtype == DType::kFp64) {
    return {std::max(rate_of(rates, PeakColumn::kFp64), rate_of(rates, PeakColumn::kFp64Tensor)), dtype};
  }
  // At most: a narrow format, 16 bit, the vector units.
  for (;; dtype = dtype >= DType::kFp8 ? (has_bf16_tensor ? DType::kBf16 : DType::kFp16) : DType::kFp32) {
    const double value = rate_of(rates, column_of(dtype));
    if (value > 0 || dtype == DType::kFp32) return {value, dtype};
  }
}

/// Boards that print one name for several SM counts and clocks.
bool shares_its_name(const PeakRow& row) noexcept {
  return row.id == "jetson-agx-orin-64" || row.id == "jetson-thor-t5000";
}

/// Parts for one power limit of many: the name does not say which.
bool is_laptop(std::string_view device_name) noexcept {
  return find_folded(device_name, "Laptop") != std::string_view::npos ||
         find_folded(device_name, "Max-Q Design") != std::string_view::npos;
}
bool is_laptop_row(const PeakRow& row) noexcept { return row.id.ends_with("-laptop"); }
constexpr std::string_view kLaptopNote = "; laptop: its clock follows its power limit, so the peak is an upper bound";

/// GeForce cards of one name with other memory and SMs (RTX 3080 with 12 GB, RTX 3050 with 6 GB): the device says how
/// many SMs it has. Data centre parts are left alone: there fewer SMs mean a share of one (MPS).
bool is_other_variant(const PeakRow& row, const DeviceFacts& device) noexcept {
  return row.sm_count > 0 && device.sm_count > 0 && device.sm_count != row.sm_count && row.name.starts_with("GeForce");
}

double table_bandwidth(const PeakRow& row, const DeviceFacts& device) noexcept {
  if (row.id == "gh200" && find_folded(device.name, "144G") != std::string_view::npos) return 4900;  // HBM3e part
  if (row.id == "jetson-agx-orin-64" && device.sm_count > 0 && device.sm_count <= 8) {
    return device.clock_khz > 0 && device.clock_khz < 700'000 ? 68 : 102.4;  // Orin Nano, Orin NX
  }
  return row.mem_gb_per_s;
}

void from_table(const PeakRow& row, const DeviceFacts& device, DType dtype, bool sparse, Peak& peak) {
  const bool bf16 = rate_of(row.dense_tflops, PeakColumn::kBf16) > 0;
  Rate rate = rate_for(row.dense_tflops, dtype, bf16);
  std::string note;
  if (rate.dtype != dtype)
    note += "; no " + std::string(name(dtype)) + " rate: " + std::string(name(rate.dtype)) +
            (rate.dtype == DType::kFp32 ? " vector" : "");
  if (sparse) {
    const double twice = rate_of(row.sparse_tflops, column_of(rate.dtype));
    if (twice > 0) {
      rate.value = twice;
      peak.sparse = true;
      note += "; 2:4 sparse";
    } else {
      note += "; no sparse rate: dense";
    }
  }
  double share = 1, memory_share = 1;
  peak.clock_khz = row.tensor_clock_mhz * 1000;
  const MigProfile mig = mig_profile(device.name);
  if (mig.is_mig && row.sm_count > 0) {
    const std::uint32_t sms = device.sm_count > 0 ? device.sm_count : sms_of_slices(row, mig.slices);
    if (sms > 0 && sms <= row.sm_count) {
      share = static_cast<double>(sms) / row.sm_count;
      note += fmt::format("; MIG: {} of {} SMs", sms, row.sm_count);
    }
    // Memory comes in eighths of the card (A30: quarters, which are eighths too).
    const double gb = mig.memory_gb > 0 ? mig.memory_gb : static_cast<double>(device.memory_bytes) * 1e-9;
    if (gb > 0 && row.memory_gb > 0) memory_share = std::clamp(std::round(gb / row.memory_gb * 8), 1.0, 8.0) / 8;
  } else if (shares_its_name(row) && device.sm_count > 0 && device.sm_count < row.sm_count * 2) {
    share = static_cast<double>(device.sm_count) / row.sm_count;
    if (device.clock_khz > 0 && row.tensor_clock_mhz > 0) {
      share *= static_cast<double>(device.clock_khz) / (row.tensor_clock_mhz * 1000.0);
      peak.clock_khz = device.clock_khz;
    }
    note += fmt::format("; scaled to {} SMs", device.sm_count);
  } else if (is_other_variant(row, device)) {
    share = static_cast<double>(device.sm_count) / row.sm_count;
    note += fmt::format("; this one has {} SMs: scaled", device.sm_count);
  }
  if (is_laptop_row(row)) note += kLaptopNote;
  peak.dtype = rate.dtype;
  if (rate.value > 0) peak.flop_per_s = rate.value * 1e12 * share;
  double bandwidth = table_bandwidth(row, device) * memory_share;
  if (is_other_variant(row, device) && device.memory_clock_khz > 0 && device.memory_bus_bits > 0)
    bandwidth = 2e-6 * device.memory_clock_khz * device.memory_bus_bits / 8;
  if (bandwidth > 0) peak.bytes_per_s = bandwidth * 1e9;
  peak.source = "table: " + std::string(row.name) + note + "; " + std::string(row.source);
}

/// Turing parts without tensor cores, which share their compute capability with those that have them: FP16 is the
/// packed vector rate, INT8 the dot product of four.
bool lacks_tensor_cores(const DeviceFacts& device) noexcept {
  if (device.cc_major != 7 || device.cc_minor != 5) return false;
  for (std::string_view part :
       {"GTX", "T400", "T500", "T550", "T600", "T1000", "T1200", "T2000", "MX450", "MX550", "Quadro T"}) {
    if (find_folded(device.name, part) != std::string_view::npos) return true;
  }
  return false;
}

/// SM count x clock x FLOP per clock and SM of the compute capability.
bool derive(const DeviceFacts& device, DType dtype, bool sparse, Peak& peak) {
  if (device.memory_clock_khz > 0 && device.memory_bus_bits > 0) {
    peak.bytes_per_s = 2.0 * device.memory_clock_khz * 1e3 * device.memory_bus_bits / 8;
  }
  const auto archs = arch_rates();
  const auto arch = std::find_if(archs.begin(), archs.end(), [&](const ArchRates& a) {
    return a.cc_major == device.cc_major && a.cc_minor == device.cc_minor;
  });
  if (arch == archs.end() || device.sm_count == 0 || device.clock_khz == 0) return false;
  const bool half_rate_class =
      std::any_of(arch->geforce.begin(), arch->geforce.end(), [](double v) { return v > 0; }) &&
      (find_folded(device.name, "GeForce") != std::string_view::npos ||
       find_folded(device.name, "TITAN") != std::string_view::npos);
  PeakRates rates = half_rate_class ? arch->geforce : arch->full;
  if (lacks_tensor_cores(device)) {
    const double vector = rate_of(rates, PeakColumn::kFp32);
    rates[static_cast<std::size_t>(PeakColumn::kFp16)] = 2 * vector;
    rates[static_cast<std::size_t>(PeakColumn::kInt8)] = 4 * vector;
  }
  const Rate rate = rate_for(rates, dtype, rate_of(rates, PeakColumn::kBf16) > 0);
  if (rate.value <= 0) return false;
  const bool tensor = rate.dtype != DType::kFp32 && rate.dtype != DType::kFp64;
  const double factor = sparse && tensor && device.cc_major >= 8 ? 2 : 1;
  peak.sparse = factor > 1;
  peak.dtype = rate.dtype;
  peak.clock_khz = device.clock_khz;
  peak.flop_per_s = device.sm_count * (device.clock_khz * 1e3) * rate.value * factor;
  peak.source = fmt::format("derived: {} SM x {:.3f} GHz x {:.0f} FLOP/clk", device.sm_count, device.clock_khz * 1e-6,
                            rate.value * factor);
  if (rate.dtype != dtype)
    peak.source += "; no " + std::string(name(dtype)) + " rate: " + std::string(name(rate.dtype));
  if (is_laptop(device.name)) peak.source += kLaptopNote;
  return true;
}

}  // namespace

const PeakRow* find_peak_row(std::string_view device_name) noexcept {
  const std::string_view name = without_vendor(device_name);
  // A laptop part shares the desktop name, not its power, SMs or clocks: it has its own row or none.
  const bool laptop = is_laptop(name);
  // A MIG name is matched without its profile, so that an end-of-name condition still holds.
  const std::string_view whole = name.substr(0, find_folded(name, " MIG "));
  for (const PeakRow& row : peak_rows()) {
    if (is_laptop_row(row) != laptop) continue;
    if (std::any_of(row.match.begin(), row.match.end(),
                    [&](std::string_view piece) { return matches(row, piece, whole); }))
      return &row;
  }
  return nullptr;
}

const PeakRow* find_peak_row_by_any_name(std::string_view name) noexcept {
  for (const PeakRow& row : peak_rows()) {
    for (std::string_view known : {row.id, row.name})
      if (known.size() == name.size() && same_at(name, 0, known)) return &row;
  }
  return find_peak_row(name);
}

namespace {

bool says_nothing(std::string_view word) noexcept {
  constexpr std::string_view kWords[] = {"nvidia", "geforce", "tesla", "rtx", "quadro", "gpu"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view w) { return w.size() == word.size() && same_at(word, 0, w); });
}

/// Letters and digits of a name in lower case, without the words that say nothing: `NVIDIA GeForce RTX 4090` > `4090`.
std::string essence(std::string_view name) {
  std::string out;
  for (std::size_t at = 0, end = 0; at < name.size(); at = end + 1) {
    end = at;
    while (end < name.size() && is_word(name[end])) ++end;
    std::string_view word = name.substr(at, end - at);
    if (word.size() > 5 && same_at(word, 0, "rtx") && word[3] >= '0' && word[3] <= '9')
      word.remove_prefix(3);  // rtx4090
    if (says_nothing(word)) continue;
    for (const char c : word) out += lower(c);
  }
  return out;
}

}  // namespace

const PeakRow* find_usual_peak_row(std::string_view name) noexcept {
  try {
    // A Max-Q part's or a slice's name is another part, not a short form of this one.
    if (find_folded(name, "Max-Q") != std::string_view::npos || find_folded(name, " MIG ") != std::string_view::npos)
      return nullptr;
    const std::string wanted = essence(name);
    if (wanted.empty()) return nullptr;
    for (const PeakRow& row : peak_rows())
      if (essence(row.id) == wanted || essence(row.name) == wanted) return &row;
    for (const PeakRow& row : peak_rows())
      if (std::find(row.short_names.begin(), row.short_names.end(), wanted) != row.short_names.end()) return &row;
  } catch (...) {  // out of memory: not found
  }
  return nullptr;
}

namespace {

/// The parts of a device's name: `NVIDIA A100-SXM4-80GB` has the family `a`, the number `100` and further words.
struct NameParts {
  std::string family, number;
  std::vector<std::string> words;
};

/// Letters that name a brand or a line of products, never a family of chips.
bool is_line(std::string_view letters) noexcept {
  return says_nothing(letters) || letters == "gtx" || letters == "pro" || letters == "titan" || letters == "jetson";
}

NameParts parts_of(std::string_view name) {
  NameParts parts;
  const auto keep = [&](const std::string& word) {
    if (!word.empty() && !says_nothing(word)) parts.words.push_back(word);
  };
  std::string before;  // letters right before the next token: joined to it, or a short word
  for (std::size_t at = 0; at < name.size();) {
    const char c = lower(name[at]);
    std::size_t end = at;
    if (c >= '0' && c <= '9') {
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      const std::string digits(name.substr(at, end - at));
      if (parts.number.empty()) {
        parts.number = digits;
        parts.family = before;
      } else {
        keep(before);
        parts.words.push_back(digits);
      }
      before.clear();
    } else if (c >= 'a' && c <= 'z') {
      keep(before);
      std::string letters;
      while (end < name.size() && lower(name[end]) >= 'a' && lower(name[end]) <= 'z') letters += lower(name[end++]);
      if (letters.size() > 3 && letters.size() < 6 && letters.starts_with("rtx")) letters.erase(0, 3);  // RTXA6000
      const bool joined = end < name.size() && name[end] >= '0' && name[end] <= '9';
      before = !is_line(letters) && (joined || letters.size() <= 2) ? letters : std::string();
      if (before.empty()) keep(letters);
    } else {
      ++end;
    }
    at = end;
  }
  keep(before);
  return parts;
}

/// How far what was typed is from a part's name. The family's letters and the number weigh most: they say which chip it
/// is; memory and form count little, and what was left out least.
std::size_t distance_of(const NameParts& typed, const NameParts& known) {
  const bool words_alone = typed.number.empty();  // `Hopper`, `Jetson`
  std::size_t distance = 0;
  if (!words_alone && typed.family != known.family) {
    const bool close =
        typed.family.empty() || (!known.family.empty() && typed.family.size() + known.family.size() > 2 &&
                                 edit_distance(typed.family, known.family) == 1);
    distance += close ? 6 : 10;
  }
  if (!words_alone && known.number.empty()) {
    distance += 16;
  } else if (!words_alone && typed.number != known.number) {
    // A digit too many or too few at the end is the likeliest slip.
    const bool cut = typed.number.starts_with(known.number) || known.number.starts_with(typed.number);
    const std::size_t slips = edit_distance(typed.number, known.number);
    distance += cut ? 5 * slips : 6 * slips + (typed.number.size() != known.number.size() ? 2 : 0);
  }
  for (const std::string& word : typed.words) {
    std::size_t best = words_alone ? 12 : 4;
    for (const std::string& other : known.words) {
      if (other == word) best = 0;
      if (best > 2 && word.size() > 2 && edit_distance(word, other) == 1) best = 2;
    }
    distance += best;
  }
  for (const std::string& word : known.words)
    distance += std::find(typed.words.begin(), typed.words.end(), word) == typed.words.end() ? 1 : 0;
  return distance;
}

}  // namespace

std::string nearest_peak_rows(std::string_view name, std::size_t most) {
  const NameParts typed = parts_of(name.substr(0, 100));
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (const PeakRow& row : peak_rows()) {
    const std::size_t distance = std::min(distance_of(typed, parts_of(row.id)), distance_of(typed, parts_of(row.name)));
    ranked.emplace_back(2 * distance + (row.short_names.empty() ? 1 : 0), row.id);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
    text += (i > 0 ? ", " : "") + std::string(ranked[i].second);
  return text;
}

namespace {

/// The row of a device, and whether it was taken for another part by a short name; nullptr: none.
struct FoundRow {
  const PeakRow* row;
  bool by_short_name;
};

FoundRow row_of(const DeviceFacts& device) noexcept {
  if (const PeakRow* row = find_peak_row_by_any_name(device.name)) return {row, false};
  return {device.sm_count == 0 ? find_usual_peak_row(device.name) : nullptr, true};
}

/// As the device has it, without what the config overrides.
Peak peak_of_device(const DeviceFacts& device, FoundRow found, DType dtype, bool sparse) {
  Peak peak;
  peak.dtype = dtype;
  if (found.row != nullptr) {
    from_table(*found.row, device, dtype, sparse, peak);
    if (found.by_short_name) peak.source += "; taken for \"" + device.name + "\"";
  } else if (!derive(device, dtype, sparse, peak)) {
    peak.source = "unknown";
  }
  return peak;
}

}  // namespace

Peak find_peak(const DeviceFacts& device, DType dtype, const PeakOptions& config) {
  const FoundRow found = row_of(device);
  Peak peak = peak_of_device(device, found, dtype, config.sparse);
  peak.sm_count = device.sm_count > 0 || found.row == nullptr ? device.sm_count : found.row->sm_count;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    peak.by_dtype[i] = config.tflops
                           ? *config.tflops * 1e12
                           : peak_of_device(device, found, static_cast<DType>(i), false).flop_per_s.value_or(0);
  }
  // The override is the divisor for any device.
  if (config.tflops || config.gbps) {
    std::string rest = peak.source;
    if (config.tflops) {
      peak.flop_per_s = *config.tflops * 1e12;
      peak.dtype = dtype;
      peak.clock_khz = 0;
      peak.sparse = false;
    }
    if (config.gbps) peak.bytes_per_s = *config.gbps * 1e9;
    peak.source = "override";
    if (!config.tflops) peak.source = rest + "; bandwidth: override";
    if (!config.gbps && peak.bytes_per_s) peak.source += "; bandwidth: " + rest;
  }
  return peak;
}

Result<Peak> find_peak_of_name(const std::string& gpu, DType dtype, const PeakOptions& config) {
  DeviceFacts facts;
  facts.name = gpu;
  Peak peak = find_peak(facts, dtype, config);
  if (!peak.flop_per_s) return Error{"expected a known GPU, got \"" + gpu + "\"; nearest: " + nearest_peak_rows(gpu)};
  return peak;
}

OperandDType operand_dtype(std::optional<DType> config, std::optional<DType> model,
                           std::optional<DType> kernels) noexcept {
  if (config) return {*config, "config"};
  if (model) return {*model, "model"};
  if (kernels) return {*kernels, "kernels"};
  return {};
}

}  // namespace mfu
