#include "core/config/config_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_fields.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/config/enum_words.h"
#include "core/config/variables.h"
#include "core/families/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;
using Problems = std::vector<Problem>;

/// Shared by the readers of the config's blocks.
struct Reading {
  const ConfigDocument& document;
  const std::vector<Override>& overrides;
  Problems* problems;

  /// Where the value of `key` came from, for messages: the file, or the override that replaced it.
  [[nodiscard]] std::string place_of(const std::string& key) const {
    for (const Override& o : overrides)
      if (o.key == key) return o.origin + ": ";
    return document.place;
  }
};

/// One object of the config: typed reads that note a problem and go on with the default.
class Section {
 public:
  /// \param path of the object in the config, with a dot behind it; empty: the top
  Section(const json& object, std::string path, const Reading& reading)
      : object_(object), path_(std::move(path)), reading_(reading) {}

  /// One read of `key`; a mistake becomes a problem that names the value used instead.
  template <typename Read>
  auto read(const char* key, Read&& reader, std::string_view instead = "using the default") {
    std::optional<Error> wrong;
    const Fields fields(object_, "", &wrong);
    auto value = reader(fields);
    if (wrong) {
      // Fields says `key: text`, and may name a key inside this one.
      const std::size_t colon = wrong->message.find(": ");
      note(path_ + wrong->message.substr(0, colon), wrong->message.substr(colon + 2), instead, path_ + key);
    }
    return value;
  }

  std::optional<std::int64_t> integer(const char* key, std::int64_t min = 0) {
    return read(
        key, [&](const Fields& f) { return f.integer(key, min, std::int64_t{1} << 40); }, "ignored");
  }

  template <typename E, std::size_t N>
  std::optional<E> word(const char* key, const std::pair<E, std::string_view> (&table)[N]) {
    return read(key, [&](const Fields& f) -> std::optional<E> {
      const json* value = f.find(key);
      if (value == nullptr) return std::nullopt;
      if (value->is_string()) {
        for (const auto& [known, text] : table)
          if (text == value->template get_ref<const std::string&>()) return known;
      }
      std::string expected = "one of";
      for (const auto& entry : table)
        expected += " " + std::string(entry.second) + (&entry == &table[N - 1] ? "" : ",");
      f.wrong(key, expected, value);
      return std::nullopt;
    });
  }

  std::optional<DType> dtype(const char* key) {
    return read(key, [&](const Fields& f) -> std::optional<DType> {
      const json* value = f.find(key);
      if (value == nullptr) return std::nullopt;
      const auto parsed = value->is_string() ? parse_dtype(value->get_ref<const std::string&>()) : std::nullopt;
      if (!parsed) f.wrong(key, "a number format such as bf16, fp16, fp8, tf32 or int8", value);
      return parsed;
    });
  }

  /// A problem for every unknown key, with the nearest right one.
  void check_keys(std::initializer_list<std::string_view> known) {
    std::optional<Error> none;
    const Fields fields(object_, "", &none);
    for (const std::string& key : fields.unknown_keys(known)) {
      const json* value = fields.find(key);
      reading_.problems->push_back(
          {reading_.place_of(path_ + key), path_ + key.substr(0, 100), Problem::Kind::kUnknownKey,
           "unknown key" + (value != nullptr ? " with value " + brief(*value) : std::string()) +
               proposal(key, {known.begin(), known.size()}),
           ""});
    }
  }

 private:
  void note(std::string key, std::string text, std::string_view instead, const std::string& whose) {
    std::string place = reading_.place_of(whose);
    if (place.starts_with("--") && key == whose) key.clear();  // the option says it all
    reading_.problems->push_back(
        {std::move(place), std::move(key), Problem::Kind::kValue, std::move(text), std::string(instead)});
  }

  const json& object_;
  std::string path_;
  const Reading& reading_;
};

/// The block `key`, or an empty object where it is missing or none.
const json& block(const Reading& reading, const char* key) {
  static const json& empty = *new json(json::object());
  const json& root = reading.document.root();
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return empty;
  if (found->is_object()) return *found;
  reading.problems->push_back(
      {reading.place_of(key), key, Problem::Kind::kValue, "expected an object, got " + brief(*found), "ignored"});
  return empty;
}

Shape read_shape(Section& s) {
  Shape shape;
  for (const auto& [key, value] : kShapeKeys) {
    const auto of_ranges = {&Shape::gen_batch, &Shape::gen_tokens, &Shape::ctx_context};
    if (std::find(of_ranges.begin(), of_ranges.end(), value) == of_ranges.end())
      shape.*value = s.integer(key, value == &Shape::batch ? 1 : 0);
  }
  return shape;
}

/// A part of the model by the config's word for it.
template <typename T>
using NamedPart = std::pair<std::string_view, bool T::*>;
constexpr NamedPart<LoraConfig> kAdapted[] = {
    {"q", &LoraConfig::q},       {"k", &LoraConfig::k},   {"v", &LoraConfig::v},       {"o", &LoraConfig::o},
    {"gate", &LoraConfig::gate}, {"up", &LoraConfig::up}, {"down", &LoraConfig::down},
};
constexpr NamedPart<TrainableConfig> kTrained[] = {{"attention", &TrainableConfig::attention},
                                                   {"mlp", &TrainableConfig::mlp},
                                                   {"lm_head", &TrainableConfig::lm_head},
                                                   {"vision", &TrainableConfig::vision},
                                                   {"encoder", &TrainableConfig::encoder}};

/// Sets the parts in the list `key` to `value`.
/// \param ending that names may have \param other a name without a part; empty: none
template <typename T, std::size_t N>
void set_parts(const Fields& f, const char* key, const NamedPart<T> (&parts)[N], bool value, std::string_view ending,
               std::string_view other, T& of) {
  const json* list = f.find(key);
  if (list == nullptr) return;
  if (!list->is_array()) return f.wrong(key, "a list of names", list);
  for (const json& entry : *list) {
    std::string_view name = entry.is_string() ? std::string_view(entry.get_ref<const std::string&>()) : "";
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
    const auto known = std::find_if(parts, parts + N, [name](const auto& part) { return part.first == name; });
    if (known != parts + N)
      of.*(known->second) = value;
    else if (name.empty() || name != other)
      f.wrong(key, "names of weights", &entry);
  }
}

LoraConfig read_lora(const Fields& f) {
  LoraConfig lora;
  lora.rank = f.require("lora_rank", 1, 1 << 20);
  if (f.find("targets") == nullptr)
    for (const auto& [name, part] : kAdapted) lora.*part = true;
  set_parts(f, "targets", kAdapted, true, "_proj", "", lora);
  return lora;
}

/// `"all"`, `"none"`, {"lora_rank": 16, "targets": ["q_proj", ...]} or {"frozen": ["attention", ...]}.
TrainableConfig read_trainable(Section& s) {
  return s.read("trainable", [](const Fields& f) {
    TrainableConfig t;
    const json* value = f.find("trainable");
    if (value == nullptr || *value == "all") return t;
    if (*value == "none") {
      t.none = true;
      return t;
    }
    if (value->is_object()) {
      const Fields inner = f.child("trainable");
      if (inner.find("lora_rank") != nullptr) {
        t.lora = read_lora(inner);
        return t;
      }
      if (inner.find("frozen") != nullptr) {
        set_parts(inner, "frozen", kTrained, false, "", "embedding", t);  // which is no work either way
        return t;
      }
    }
    f.wrong("trainable",
            "\"all\", \"none\", {\"lora_rank\": r, \"targets\": [...]} or {\"frozen\": [attention, mlp, lm_head, "
            "vision, encoder]}",
            value);
    return t;
  });
}

void read_images(Section& s, FlopsOptions& options) {
  s.read("images", [&](const Fields& f) {
    const json* list = f.find("images");
    if (list == nullptr) return 0;
    const auto bad = [&f](const json* value) {
      f.wrong("images", "a list such as [\"896x896\"], height x width in pixels", value);
      return 0;
    };
    if (!list->is_array()) return bad(list);
    for (const json& entry : *list) {
      if (!entry.is_string()) return bad(&entry);
      const std::string& text = entry.get_ref<const std::string&>();
      const std::size_t cross = std::min(text.find_first_of("xX"), text.size());
      const auto height = parse_whole_number(text.substr(0, cross)).value_or(0);
      const auto width = parse_whole_number(text.substr(std::min(cross + 1, text.size()))).value_or(0);
      if (height <= 0 || width <= 0 || std::max(height, width) > (1 << 20)) return bad(&entry);
      options.images.emplace_back(height, width);
    }
    return 0;
  });
}

void read_counting(Section& s, FlopsOptions& options, bool* windows) {
  s.check_keys({"convention", "attention", "logits", "context", "mla", "windows", "weight_dtype", "kv_dtype"});
  s.read("convention", [&](const Fields& f) {
    const std::string convention = f.text_or("convention", "exact");
    if (convention == "exact-full") {
      options.attention = AttentionMode::kFull;
    } else if (const auto parsed = parse_convention(convention)) {
      options.convention = *parsed;
    } else {
      f.wrong("convention",
              "exact, exact-full, palm, nanogpt, torchtitan, torchtitan-2026, megatron, kaplan, chinchilla or 6nd",
              f.find("convention"));
    }
    return 0;
  });
  if (const auto attention = s.word("attention", kAttentionWords)) options.attention = *attention;
  if (const auto logits = s.word("logits", kLogitsWords)) options.logits = *logits;
  if (const auto context = s.word("context", kContextWords)) options.context_mode = *context;
  options.mla_absorbed = s.word("mla", kMlaWords).value_or(false);
  *windows = s.read("windows", [](const Fields& f) { return f.flag("windows", true); });
  if (const auto dtype = s.dtype("weight_dtype")) options.weight_format = weight_format(*dtype);
  options.kv_dtype = s.dtype("kv_dtype");
}

/// One rule of `regions`. nullopt: it cannot be used.
std::optional<RegionRule> read_rule(const json& entry, const std::string& path, const Reading& reading) {
  Section s(entry, path + ".", reading);
  s.check_keys({"region", "match", "domain", "payload", "phase", "batch", "seq_len", "context", "new_tokens", "tokens",
                "encoder_len"});
  bool usable = true;
  const auto text = [&](const char* key, bool required) {
    return s.read(
        key,
        [&](const Fields& f) -> std::optional<std::string> {
          const json* value = f.find(key);
          if (value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty())
            return value->get<std::string>();
          if (value != nullptr || required) {
            f.wrong(key, "text", value);
            usable = false;
          }
          return std::nullopt;
        },
        "the rule is ignored");
  };
  RegionRule rule;
  rule.region = printable(text("region", true).value_or(""));
  // Without one no range is the region: the rule holds where kernels show the region.
  rule.match = text("match", false).value_or("(?!)");
  rule.domain = text("domain", false);
  rule.payload = text("payload", false);
  rule.phase = s.word("phase", kPhaseWords);
  rule.constants = read_shape(s);
  if (!usable) return std::nullopt;
  return rule;
}

void read_regions(const Reading& reading, Config& config) {
  const json& root = reading.document.root();
  const auto found = root.find("regions");
  if (found == root.end() || found->is_null()) return;
  const auto wrong = [&](std::string key, std::string text, const char* instead) {
    reading.problems->push_back(
        {reading.place_of("regions"), std::move(key), Problem::Kind::kValue, std::move(text), instead});
  };
  if (!found->is_array()) return wrong("regions", "expected a list of rules, got " + brief(*found), "ignored");
  constexpr std::size_t kMostRules = 1000;
  for (std::size_t i = 0; i < found->size(); ++i) {
    const json& entry = (*found)[i];
    const std::string path = "regions[" + std::to_string(i) + "]";
    if (i >= kMostRules) return wrong(path, "expected at most 1000 rules", "the rest is ignored");
    if (!entry.is_object()) {
      wrong(path, "expected an object such as {\"region\": \"decode\", \"match\": \"decode.*\"}, got " + brief(entry),
            "ignored");
    } else if (auto rule = read_rule(entry, path, reading)) {
      config.regions.push_back(std::move(*rule));
    }
  }
}

void read_presets(const Reading& reading, Config& config) {
  const json& root = reading.document.root();
  const auto presets = root.find("presets");
  if (presets == root.end() || presets->is_null()) return;
  if (!presets->is_array() ||
      !std::all_of(presets->begin(), presets->end(), [](const json& p) { return p.is_string(); })) {
    reading.problems->push_back({reading.place_of("presets"), "presets", Problem::Kind::kValue,
                                 "expected a list of names, got " + brief(*presets), "using all"});
    return;
  }
  for (const json& preset : *presets) config.presets.push_back(preset.get<std::string>());
}

void read_workload(const Reading& reading, Config& config, FlopsOptions& options) {
  Section s(block(reading, "workload"), "workload.", reading);
  s.check_keys({"phase", "batch", "seq_len", "context", "new_tokens", "tokens", "encoder_len", "grad_accum",
                "documents", "recompute", "trainable", "images"});
  config.workload.phase = s.word("phase", kPhaseWords);
  config.workload.shape = read_shape(s);
  const std::optional<std::int64_t> grad_accum = s.integer("grad_accum", 1);
  config.workload.grad_accum_given = grad_accum.has_value();
  config.workload.grad_accum = grad_accum.value_or(1);
  options.grad_accum = config.workload.grad_accum;
  options.documents = s.integer("documents", 1).value_or(1);
  if (const auto recompute = s.word("recompute", kRecomputeWords)) options.recompute = *recompute;
  options.trainable = read_trainable(s);
  read_images(s, options);
}

void read_parallel(const Reading& reading, FlopsOptions& options) {
  Section s(block(reading, "parallel"), "parallel.", reading);
  s.check_keys({"tp", "pp", "cp", "ep", "dp"});
  ParallelConfig& p = options.parallel;
  for (const auto& [key, size] : {std::pair("tp", &p.tp), {"pp", &p.pp}, {"cp", &p.cp}, {"ep", &p.ep}, {"dp", &p.dp}})
    *size = s.integer(key, 1).value_or(1);
}

void read_peak(const Reading& reading, PeakOptions& peak) {
  Section s(block(reading, "peak"), "peak.", reading);
  s.check_keys({"dtype", "sparse", "tflops", "gbps"});
  peak.dtype = s.dtype("dtype");
  peak.sparse = s.read("sparse", [](const Fields& f) { return f.flag("sparse", false); });
  peak.tflops = s.read("tflops", [](const Fields& f) { return f.number("tflops", 0); });
  peak.gbps = s.read("gbps", [](const Fields& f) { return f.number("gbps", 0); });
}

}  // namespace

void read_config_file(const ConfigDocument& document, const std::vector<Override>& overrides, Config& config,
                      FlopsOptions& options, Problems* problems) {
  const Reading reading{document, overrides, problems};
  const json& root = document.root();
  for (const auto& [place, key] : document.repeated)
    problems->push_back({place, key, Problem::Kind::kRepeatedKey, "given more than once", "using the last"});
  Section(root, "", reading).check_keys({"model", "workload", "parallel", "peak", "counting", "regions", "presets"});
  read_workload(reading, config, options);
  read_parallel(reading, options);
  read_peak(reading, config.peak);
  bool windows = true;
  Section counting(block(reading, "counting"), "counting.", reading);
  read_counting(counting, options, &windows);
  read_regions(reading, config);
  read_presets(reading, config);
  const auto model = root.find("model");
  if (model == root.end()) return;
  Result<Architecture> spec = read_parsed_model(*model, document.model_place);
  if (!spec) {
    problems->push_back({"", "", Problem::Kind::kNoModel, spec.error().message, "measuring time only"});
    return;
  }
  for (const std::string& assumed : spec->assumed)
    problems->push_back({document.model_place, "assumed", Problem::Kind::kAssumed, assumed, ""});
  for (const std::string& part : spec->not_counted)
    problems->push_back({document.model_place, "not counted", Problem::Kind::kAssumed, part, ""});
  const bool experts = std::any_of(spec->layers.begin(), spec->layers.end(),
                                   [](const LayerSpec& layer) { return layer.mlp.experts > 0; });
  if (options.parallel.ep > 1 && !experts && !spec->flat_params) {
    problems->push_back({reading.place_of("parallel.ep"), "parallel.ep", Problem::Kind::kValue,
                         "expected 1: the model has no experts, got " + std::to_string(options.parallel.ep),
                         "using 1"});
    options.parallel.ep = 1;
  }
  if (!windows)
    for (LayerSpec& layer : spec->layers) layer.mixer.window = 0;
  config.model = FlopsModel::make(std::move(*spec), options);
  config.model_source = document.model_source;
}

}  // namespace mfu
