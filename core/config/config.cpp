#include "core/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/edit_distance.h"
#include "core/base/json_fields.h"
#include "core/config/config_source.h"
#include "core/model/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kVariables[] = {
    "MFU_MODEL_CONFIG", "MFU_SET",         "MFU_INTERVAL",      "MFU_RUN_DIR",  "MFU_LOG",
    "MFU_LOG_RANKS",    "MFU_PEAK_TFLOPS", "MFU_PEAK_GBPS",     "MFU_PROFILER", "MFU_CUPTI",
    "MFU_DISABLE",      "MFU_TRACE",       "MFU_TRACE_SECONDS", "MFU_DETECT",   "MFU_TB_DIR",
};

constexpr std::pair<Phase, std::string_view> kPhases[] = {
    {Phase::kNone, "none"},   {Phase::kTrain, "train"},   {Phase::kPrefill, "prefill"}, {Phase::kDecode, "decode"},
    {Phase::kMixed, "mixed"}, {Phase::kVision, "vision"}, {Phase::kForward, "forward"}, {Phase::kBackward, "backward"},
};

constexpr std::pair<Recompute, std::string_view> kRecomputes[] = {{Recompute::kNone, "none"},
                                                                  {Recompute::kFlash, "flash"},
                                                                  {Recompute::kSelective, "selective"},
                                                                  {Recompute::kFull, "full"}};
constexpr std::pair<LogitsMode, std::string_view> kLogits[] = {{LogitsMode::kAll, "all"}, {LogitsMode::kLast, "last"}};
constexpr std::pair<ContextMode, std::string_view> kContexts[] = {
    {ContextMode::kAuto, "auto"}, {ContextMode::kFixed, "fixed"}, {ContextMode::kMax, "max"}};

template <typename E, std::size_t N>
std::string_view word_of(const std::pair<E, std::string_view> (&table)[N], E value) {
  for (const auto& [known, word] : table) {
    if (known == value) return word;
  }
  return "";
}

template <typename Names>
std::string_view nearest(std::string_view word, const Names& names) {
  std::string_view best;
  std::size_t least = SIZE_MAX;
  for (std::string_view candidate : names) {
    const std::size_t d = edit_distance(word, candidate);
    if (d < least) least = d, best = candidate;
  }
  return best;
}

/// What reading a config finds wrong, one line each.
using Lines = std::vector<std::string>;

/// One object of the config: typed reads that note a problem and go on with the default.
class Section {
 public:
  Section(const json& object, std::string place, Lines* lines)
      : fields_(object, std::move(place), &problem_), lines_(lines) {}
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  /// One read; a problem becomes one line with what is used instead.
  template <typename Read>
  auto read(Read&& reader, std::string_view instead = "using the default") {
    auto value = reader(fields_);
    if (problem_) {
      lines_->push_back(problem_->message + "; " + std::string(instead));
      problem_.reset();
    }
    return value;
  }

  std::optional<std::int64_t> integer(const char* key, std::int64_t min = 0) {
    return read([&](const Fields& f) { return f.integer(key, min, std::int64_t{1} << 40); }, "ignored");
  }

  template <typename E, std::size_t N>
  std::optional<E> word(const char* key, const std::pair<E, std::string_view> (&table)[N]) {
    return read([&](const Fields& f) -> std::optional<E> {
      const json* value = f.find(key);
      if (value == nullptr) return std::nullopt;
      if (value->is_string()) {
        for (const auto& [known, text] : table) {
          if (text == value->template get_ref<const std::string&>()) return known;
        }
      }
      std::string expected = "one of";
      for (const auto& entry : table)
        expected += " " + std::string(entry.second) + (&entry == &table[N - 1] ? "" : ",");
      f.wrong(key, expected, value);
      return std::nullopt;
    });
  }

  std::optional<DType> dtype(const char* key) {
    return read([&](const Fields& f) -> std::optional<DType> {
      const json* value = f.find(key);
      if (value == nullptr) return std::nullopt;
      const auto parsed = value->is_string() ? parse_dtype(value->get_ref<const std::string&>()) : std::nullopt;
      if (!parsed) f.wrong(key, "a number format such as bf16, fp16, fp8, tf32 or int8", value);
      return parsed;
    });
  }

  /// A line for every key that nobody reads, with the nearest right one.
  void check_keys(std::initializer_list<std::string_view> known) {
    for (const std::string& key : fields_.unknown_keys(known)) {
      const json* value = fields_.find(key);
      lines_->push_back(fields_.place() + key.substr(0, 100) + ": unknown key" +
                        (value != nullptr ? " with value " + brief(*value) : std::string()) + "; did you mean " +
                        std::string(nearest(key, known)) + "?");
    }
  }

  const Fields& fields() const { return fields_; }
  void note(std::string line) { lines_->push_back(std::move(line)); }

 private:
  std::optional<Error> problem_;
  Fields fields_;
  Lines* lines_;
};

const json& object_at(const json& root, const char* key, const std::string& place, Lines* lines) {
  static const json& empty = *new json(json::object());
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return empty;
  if (found->is_object()) return *found;
  lines->push_back(place + key + ": expected an object, got " + brief(*found) + "; ignored");
  return empty;
}

/// `a.b.c=value`, comma separated, written into the config before it is read. A value that is JSON is taken as such.
/// \return the keys that were written
Lines apply_overrides(std::string_view overrides, json& root, Lines* lines) {
  Lines keys;
  std::vector<std::string> pieces;
  while (!overrides.empty()) {
    const std::size_t comma = overrides.find(',');
    const std::string_view piece = overrides.substr(0, comma);
    if (piece.find('=') == std::string_view::npos && !pieces.empty()) {
      pieces.back() += "," + std::string(piece);  // a comma inside a value
    } else if (!piece.empty()) {
      pieces.emplace_back(piece);
    }
    if (comma == std::string_view::npos) break;
    overrides.remove_prefix(comma + 1);
  }
  for (const std::string& piece : pieces) {
    const std::size_t equals = piece.find('=');
    const std::string path = piece.substr(0, equals);
    if (equals == std::string::npos || path.empty() || path.front() == '.' || path.back() == '.' ||
        path.find("..") != std::string::npos) {
      lines->push_back("MFU_SET: expected key=value such as workload.batch=8, got \"" + piece.substr(0, 60) +
                       "\"; ignored");
      continue;
    }
    const std::string text = piece.substr(equals + 1);
    json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    json* place = &root;
    std::size_t begin = 0;
    int depth = 0;
    bool usable = true;
    while (usable) {
      const std::size_t dot = path.find('.', begin);
      const std::string key = path.substr(begin, dot - begin);
      if (!place->is_object()) {
        if (!place->is_null()) usable = false;
        *place = usable ? json::object() : std::move(*place);
        if (!usable) break;
      }
      place = &(*place)[key];
      if (dot == std::string::npos) break;
      begin = dot + 1;
      usable = ++depth < 8;
    }
    if (!usable) {
      lines->push_back("MFU_SET: " + path.substr(0, 60) +
                       ": expected a key of the config, got one below a plain value; ignored");
      continue;
    }
    *place = std::move(value);
    keys.push_back(path);
  }
  return keys;
}

Shape read_shape(Section& s) {
  Shape shape;
  shape.batch = s.integer("batch");
  shape.seq_len = s.integer("seq_len");
  shape.context = s.integer("context");
  shape.new_tokens = s.integer("new_tokens");
  shape.tokens = s.integer("tokens");
  shape.encoder_len = s.integer("encoder_len");
  return shape;
}

/// `"lora"` alone, {"lora_rank": 16, "targets": ["q_proj", ...]} or {"frozen": ["attention", ...]}.
TrainableConfig read_trainable(Section& s) {
  TrainableConfig t;
  return s.read([&](const Fields& f) {
    const json* value = f.find("trainable");
    if (value == nullptr) return t;
    constexpr std::string_view kExpected =
        "\"all\", \"none\", {\"lora_rank\": r, \"targets\": [...]} or {\"frozen\": [attention, mlp, lm_head, vision, "
        "encoder]}";
    if (*value == "all") return t;
    if (*value == "none") {
      t.none = true;
      return t;
    }
    if (!value->is_object()) {
      f.wrong("trainable", kExpected, value);
      return t;
    }
    const Fields inner = f.child("trainable");
    const auto each = [&](const char* key, auto&& use) {
      const json* list = inner.find(key);
      if (list == nullptr) return;
      if (!list->is_array()) return inner.wrong(key, "a list of names", list);
      for (const json& entry : *list) {
        if (!entry.is_string() || !use(entry.get_ref<const std::string&>()))
          inner.wrong(key, "names of weights", &entry);
      }
    };
    if (inner.find("lora_rank") != nullptr) {
      LoraConfig lora;
      lora.rank = inner.require("lora_rank", 1, 1 << 20);
      const bool all = inner.find("targets") == nullptr;
      lora.q = lora.k = lora.v = lora.o = lora.gate = lora.up = lora.down = all;
      each("targets", [&lora](const std::string& name) {
        const std::pair<std::string_view, bool*> known[] = {{"q", &lora.q},      {"k", &lora.k},       {"v", &lora.v},
                                                            {"o", &lora.o},      {"gate", &lora.gate}, {"up", &lora.up},
                                                            {"down", &lora.down}};
        for (const auto& [word, target] : known) {
          if (name == word || name == std::string(word) + "_proj") return *target = true;
        }
        return false;
      });
      t.lora = lora;
    } else if (inner.find("frozen") != nullptr) {
      each("frozen", [&t](const std::string& name) {
        const std::pair<std::string_view, bool*> known[] = {{"attention", &t.attention},
                                                            {"mlp", &t.mlp},
                                                            {"lm_head", &t.lm_head},
                                                            {"vision", &t.vision},
                                                            {"encoder", &t.encoder}};
        for (const auto& [word, part] : known) {
          if (name == word) {
            *part = false;
            return true;
          }
        }
        return name == "embedding";  // no work either way
      });
    } else {
      f.wrong("trainable", kExpected, value);
    }
    return t;
  });
}

void read_images(Section& s, FlopsOptions& options) {
  s.read([&](const Fields& f) {
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
      const std::size_t cross = text.find_first_of("xX");
      char* end = nullptr;
      const long height = std::strtol(text.c_str(), &end, 10);
      const bool first_ok = cross != std::string::npos && end == text.c_str() + cross;
      const long width = first_ok ? std::strtol(text.c_str() + cross + 1, &end, 10) : 0;
      if (!first_ok || *end != '\0' || height <= 0 || width <= 0 || height > (1 << 20) || width > (1 << 20))
        return bad(&entry);
      options.images.emplace_back(height, width);
    }
    return 0;
  });
}

void read_counting(Section& s, FlopsOptions& options, bool* windows) {
  s.check_keys({"convention", "attention", "logits", "context", "mla", "windows", "weight_dtype", "kv_dtype"});
  s.read([&](const Fields& f) {
    const std::string convention = f.text_or("convention", "exact");
    if (convention == "exact-full") {
      options.attention = AttentionMode::kFull;
    } else if (const auto parsed = parse_convention(convention)) {
      options.convention = *parsed;
    } else {
      f.wrong("convention", "exact, exact-full, palm, nanogpt, torchtitan, megatron, kaplan, chinchilla or 6nd",
              f.find("convention"));
    }
    return 0;
  });
  s.read([&](const Fields& f) {
    const json* value = f.find("attention");
    if (value == nullptr) return 0;
    const auto parsed = parse_attention_mode(f.text_or("attention", ""));
    if (parsed)
      options.attention = *parsed;
    else
      f.wrong("attention", "causal, full or full_windowed", value);
    return 0;
  });
  if (const auto logits = s.word("logits", kLogits)) options.logits = *logits;
  if (const auto context = s.word("context", kContexts)) options.context_mode = *context;
  s.read([&](const Fields& f) {
    const std::string mla = f.text_or("mla", "expanded");
    if (mla != "expanded" && mla != "absorbed") f.wrong("mla", "expanded or absorbed", f.find("mla"));
    options.mla_absorbed = mla == "absorbed";
    return 0;
  });
  *windows = s.read([](const Fields& f) { return f.flag("windows", true); });
  if (const auto dtype = s.dtype("weight_dtype")) options.weight_format = weight_format(*dtype);
  options.kv_dtype = s.dtype("kv_dtype");
}

void read_regions(const json& root, const std::string& place, Config& config, Lines* lines) {
  const auto found = root.find("regions");
  if (found == root.end() || found->is_null()) return;
  if (!found->is_array()) {
    lines->push_back(place + "regions: expected a list of rules, got " + brief(*found) + "; ignored");
    return;
  }
  constexpr std::size_t kMostRules = 1000;
  for (std::size_t i = 0; i < found->size(); ++i) {
    const json& entry = (*found)[i];
    const std::string at = place + "regions[" + std::to_string(i) + "]";
    if (i >= kMostRules) {
      lines->push_back(at + ": expected at most 1000 rules; the rest is ignored");
      return;
    }
    if (!entry.is_object()) {
      lines->push_back(at + ": expected an object such as {\"region\": \"decode\", \"match\": \"decode.*\"}, got " +
                       brief(entry) + "; ignored");
      continue;
    }
    Section s(entry, at + ".", lines);
    s.check_keys({"region", "match", "domain", "payload", "phase", "batch", "seq_len", "context", "new_tokens",
                  "tokens", "encoder_len"});
    RegionRule rule;
    bool usable = true;
    const auto text = [&](const char* key, bool required) -> std::optional<std::string> {
      return s.read(
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
    rule.region = text("region", true).value_or("");
    // Without one no range is the region: what the rule says holds where the kernels tell it.
    rule.match = text("match", false).value_or("(?!)");
    rule.domain = text("domain", false);
    rule.payload = text("payload", false);
    rule.phase = s.word("phase", kPhases);
    rule.constants = read_shape(s);
    if (usable) config.regions.push_back(std::move(rule));
  }
}

bool is_wrapper(const json& root) {
  if (root.contains("model_type") || root.contains("n_layer") || root.contains("layers") || root.contains("params"))
    return false;
  for (const char* key : {"model", "workload", "parallel", "peak", "counting", "regions", "presets"}) {
    if (root.contains(key)) return true;
  }
  return root.empty();
}

struct Resolved {
  json root = json::object();  ///< the wrapper, with `model` as an object where there is one
  std::string place;           ///< before keys of the wrapper, in messages
  std::string model_place;     ///< before keys of the model
  std::string model_source;
};

/// Reads the source and puts a plain model config into a wrapper, so that there is one form from here on.
Result<Resolved> resolve(std::string_view source, std::string_view origin, const Getenv& getenv) {
  const std::string prefix = origin.empty() ? std::string() : std::string(origin) + " ";
  Result<ConfigText> text = find_config_text(source, "", getenv);
  if (!text) return Error{prefix + text.error().message};
  Resolved r;
  Result<json> parsed = parse_json(text->text, prefix + text->name);
  if (!parsed) return parsed.error();
  r.place = prefix + text->name + ": ";
  if (!parsed->is_object()) return Error{r.place + "expected a JSON object, got " + brief(*parsed)};
  r.model_source = text->name;
  if (!is_wrapper(*parsed)) {
    r.root["model"] = std::move(*parsed);
    r.model_place = r.place;
    return r;
  }
  r.root = std::move(*parsed);
  r.model_place = r.place + "model.";
  const auto model = r.root.find("model");
  if (model == r.root.end() || model->is_null()) {
    r.root.erase("model");
    r.model_source.clear();
    return r;
  }
  if (model->is_string()) {
    Result<ConfigText> inner = find_config_text(model->get_ref<const std::string&>(), text->folder, getenv);
    if (!inner) return Error{r.place + "model: " + inner.error().message};
    Result<json> inner_json = parse_json(inner->text, prefix + inner->name);
    if (!inner_json) return inner_json.error();
    r.model_place = prefix + inner->name + ": ";
    r.model_source = inner->name;
    r.root["model"] = std::move(*inner_json);
  }
  if (!r.root["model"].is_object()) {
    return Error{r.place + "model: expected a path, a model id or an object, got " + brief(r.root["model"])};
  }
  return r;
}

OrderedJson shape_json(const Shape& shape) {
  OrderedJson j = OrderedJson::object();
  const std::pair<const char*, const std::optional<std::int64_t>&> keys[] = {
      {"batch", shape.batch},           {"seq_len", shape.seq_len}, {"context", shape.context},
      {"new_tokens", shape.new_tokens}, {"tokens", shape.tokens},   {"encoder_len", shape.encoder_len}};
  for (const auto& [key, value] : keys) {
    if (value) j[key] = *value;
  }
  return j;
}

std::string resolved_json(const Config& c, const FlopsOptions& o) {
  OrderedJson j = OrderedJson::object();
  j["model"] = c.model ? OrderedJson::parse(spec_json(c.model->spec()), nullptr, false) : OrderedJson(nullptr);
  j["model_source"] = c.model_source;
  OrderedJson workload = shape_json(c.workload.shape);
  if (c.workload.phase) workload["phase"] = word_of(kPhases, *c.workload.phase);
  workload["grad_accum"] = c.workload.grad_accum;
  workload["recompute"] = word_of(kRecomputes, o.recompute);
  j["workload"] = workload;
  j["parallel"] = {{"tp", o.parallel.tp},
                   {"pp", o.parallel.pp},
                   {"cp", o.parallel.cp},
                   {"ep", o.parallel.ep},
                   {"dp", o.parallel.dp}};
  OrderedJson peak = {{"sparse", c.peak.sparse}};
  if (c.peak.dtype) peak["dtype"] = name(*c.peak.dtype);
  if (c.peak.tflops) peak["tflops"] = *c.peak.tflops;
  if (c.peak.gbps) peak["gbps"] = *c.peak.gbps;
  j["peak"] = peak;
  j["counting"] = {{"convention", name(o.convention)}, {"attention", name(o.attention)}};
  OrderedJson rules = OrderedJson::array();
  for (const RegionRule& rule : c.regions) {
    OrderedJson entry = {{"region", rule.region}, {"match", rule.match}};
    if (rule.domain) entry["domain"] = *rule.domain;
    if (rule.payload) entry["payload"] = *rule.payload;
    if (rule.phase) entry["phase"] = word_of(kPhases, *rule.phase);
    const OrderedJson constants = shape_json(rule.constants);
    for (const auto& item : constants.items()) entry[item.key()] = item.value();
    rules.push_back(std::move(entry));
  }
  j["regions"] = rules;
  j["presets"] = c.presets;
  j["interval_s"] = c.interval_s;
  return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

/// Everything in the config file. `model_error`: why there is no model although one was named.
void read_config(Resolved& r, Config& config, FlopsOptions& options, Lines* lines, std::optional<Error>* model_error) {
  const json& root = r.root;
  {
    Section top(root, r.place, lines);
    top.check_keys({"model", "workload", "parallel", "peak", "counting", "regions", "presets"});
  }
  {
    Section s(object_at(root, "workload", r.place, lines), r.place + "workload.", lines);
    s.check_keys({"phase", "batch", "seq_len", "context", "new_tokens", "tokens", "encoder_len", "grad_accum",
                  "recompute", "trainable", "images"});
    config.workload.phase = s.word("phase", kPhases);
    config.workload.shape = read_shape(s);
    const std::optional<std::int64_t> grad_accum = s.integer("grad_accum", 1);
    config.workload.grad_accum_given = grad_accum.has_value();
    config.workload.grad_accum = grad_accum.value_or(1);
    options.grad_accum = config.workload.grad_accum;
    if (const auto recompute = s.word("recompute", kRecomputes)) options.recompute = *recompute;
    options.trainable = read_trainable(s);
    read_images(s, options);
  }
  {
    Section s(object_at(root, "parallel", r.place, lines), r.place + "parallel.", lines);
    s.check_keys({"tp", "pp", "cp", "ep", "dp"});
    const std::pair<const char*, std::int64_t*> sizes[] = {{"tp", &options.parallel.tp},
                                                           {"pp", &options.parallel.pp},
                                                           {"cp", &options.parallel.cp},
                                                           {"ep", &options.parallel.ep},
                                                           {"dp", &options.parallel.dp}};
    for (const auto& [key, value] : sizes) *value = s.integer(key, 1).value_or(1);
  }
  {
    Section s(object_at(root, "peak", r.place, lines), r.place + "peak.", lines);
    s.check_keys({"dtype", "sparse", "tflops", "gbps"});
    config.peak.dtype = s.dtype("dtype");
    config.peak.sparse = s.read([](const Fields& f) { return f.flag("sparse", false); });
    config.peak.tflops = s.read([](const Fields& f) { return f.number("tflops", 0); });
    config.peak.gbps = s.read([](const Fields& f) { return f.number("gbps", 0); });
  }
  bool windows = true;
  {
    Section s(object_at(root, "counting", r.place, lines), r.place + "counting.", lines);
    read_counting(s, options, &windows);
  }
  read_regions(root, r.place, config, lines);
  if (const auto presets = root.find("presets"); presets != root.end() && !presets->is_null()) {
    const bool valid = presets->is_array() &&
                       std::all_of(presets->begin(), presets->end(), [](const json& p) { return p.is_string(); });
    if (valid) {
      for (const json& preset : *presets) config.presets.push_back(preset.get<std::string>());
    } else {
      lines->push_back(r.place + "presets: expected a list of names, got " + brief(*presets) + "; using all");
    }
  }
  const auto model = root.find("model");
  if (model == root.end()) return;
  Result<Architecture> spec = read_model(model->dump(-1, ' ', false, json::error_handler_t::replace), r.model_place);
  if (!spec) {
    *model_error = spec.error();
    return;
  }
  for (const std::string& assumed : spec->assumed) lines->push_back(r.model_place + "assumed: " + assumed);
  if (!windows) {
    for (LayerSpec& layer : spec->layers) layer.mixer.window = 0;
  }
  config.model = FlopsModel::make(std::move(*spec), options);
  config.model_source = r.model_source;
}

// ---------------------------------------------------------------- environment

const char* value_of(const Getenv& getenv, const char* name) {
  const char* value = getenv ? getenv(name) : nullptr;
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::optional<double> positive_number(const Getenv& getenv, const char* name, Lines* lines, const char* instead) {
  const char* text = value_of(getenv, name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end != text && *end == '\0' && std::isfinite(value) && value > 0) return value;
  lines->push_back(std::string(name) + ": expected a number > 0, got \"" + std::string(text).substr(0, 60) + "\"; " +
                   instead);
  return std::nullopt;
}

std::optional<std::int64_t> whole_number(const char* text) {
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < 0 || value > (std::int64_t{1} << 40)) return std::nullopt;
  return value;
}

struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world;
};

// In this order: torchrun, Slurm, Open MPI, PMIx, PMI (MPICH, Intel MPI), Flux.
constexpr Launcher kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE"},
    {"PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"},
};

void read_launcher(const Getenv& getenv, Config& config) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = whole_number(value_of(getenv, launcher.rank));
    if (!rank) continue;
    config.rank = *rank;
    if (const auto local = whole_number(value_of(getenv, launcher.local_rank))) config.local_rank = *local;
    if (const auto world = whole_number(value_of(getenv, launcher.world)); world && *world > 0)
      config.world_size = *world;
    return;
  }
  if (const auto local = whole_number(value_of(getenv, "LOCAL_RANK"))) config.local_rank = *local;
  if (const auto world = whole_number(value_of(getenv, "WORLD_SIZE")); world && *world > 0) config.world_size = *world;
}

/// %h host, %p pid, %r rank, %q{NAME} an environment variable, %% a percent sign; anything else stays.
std::string expand(std::string_view text, const Config& config, const Getenv& getenv) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == 'h') {
      out += config.host;
    } else if (kind == 'p') {
      out += std::to_string(::getpid());
    } else if (kind == 'r') {
      out += std::to_string(config.rank);
    } else if (kind == '%') {
      out += '%';
    } else if (kind == 'q' && i + 1 < text.size() && text[i + 1] == '{' &&
               text.find('}', i) != std::string_view::npos) {
      const std::size_t end = text.find('}', i);
      const char* value = value_of(getenv, std::string(text.substr(i + 2, end - i - 2)).c_str());
      if (value != nullptr) out += value;
      i = end;
    } else {
      out += '%';
      out += kind;
    }
  }
  return out;
}

std::string host_name() {
  char buffer[256] = {};
  if (::gethostname(buffer, sizeof buffer - 1) != 0 || buffer[0] == '\0') return "localhost";
  return buffer;
}

void check_spelling(const char* const* environ_block, Lines* lines) {
  if (environ_block == nullptr) return;
  constexpr std::size_t kMostLines = 10;
  std::size_t said = 0;
  for (; *environ_block != nullptr && said < kMostLines; ++environ_block) {
    if (std::strncmp(*environ_block, "MFU_", 4) != 0) continue;
    const std::string_view entry(*environ_block);
    const std::string_view variable = entry.substr(0, std::min<std::size_t>(entry.find('='), 64));
    if (std::find(std::begin(kVariables), std::end(kVariables), variable) != std::end(kVariables)) continue;
    lines->push_back(std::string(variable) + ": unknown variable; did you mean " +
                     std::string(nearest(variable, kVariables)) + "?");
    ++said;
  }
}

bool flag(const Getenv& getenv, const char* name, bool usual, Lines* lines) {
  const char* text = value_of(getenv, name);
  if (text == nullptr) return usual;
  const std::string_view given(text);
  if (given == "1" || given == "true") return true;
  if (given == "0" || given == "false") return false;
  lines->push_back(std::string(name) + ": expected 1 or 0, got \"" + std::string(given.substr(0, 60)) + "\"; using " +
                   (usual ? "1" : "0"));
  return usual;
}

/// The variables that are not about the model. `lines` gets what is unusable.
void read_environment(const Getenv& getenv, Config& config, Lines* lines) {
  config.host = host_name();
  read_launcher(getenv, config);
  config.interval_s = positive_number(getenv, "MFU_INTERVAL", lines, "using 10").value_or(10);
  if (config.interval_s < 0.01) {
    lines->push_back("MFU_INTERVAL: expected at least 0.01 s, got " + std::to_string(config.interval_s) +
                     "; using 0.01");
    config.interval_s = 0.01;
  }
  config.interval_s = std::min(config.interval_s, 1e6);
  if (const char* text = value_of(getenv, "MFU_RUN_DIR")) config.run_dir = expand(text, config, getenv);
  if (const char* text = value_of(getenv, "MFU_TRACE")) config.trace = expand(text, config, getenv);
  config.trace_seconds = positive_number(getenv, "MFU_TRACE_SECONDS", lines, "using 60").value_or(60);
  config.trace_seconds = std::min(config.trace_seconds, 1e6);
  if (const char* text = value_of(getenv, "MFU_TB_DIR")) config.tb_dir = expand(text, config, getenv);
  if (const char* text = value_of(getenv, "MFU_LOG")) config.log = expand(text, config, getenv);
  if (const char* text = value_of(getenv, "MFU_LOG_RANKS")) {
    config.log_all_ranks = std::string_view(text) == "all";
    if (!config.log_all_ranks && std::string_view(text) != "0") {
      lines->push_back("MFU_LOG_RANKS: expected all or 0, got \"" + std::string(text).substr(0, 60) + "\"; using 0");
    }
  }
  if (const char* text = value_of(getenv, "MFU_PROFILER")) {
    if (std::string_view(text) == "share") {
      config.profiler = ProfilerPolicy::kShare;
    } else if (std::string_view(text) != "own") {
      lines->push_back("MFU_PROFILER: expected own or share, got \"" + std::string(text).substr(0, 60) +
                       "\"; using own");
    }
  }
  if (const char* text = value_of(getenv, "MFU_CUPTI")) config.cupti_path = text;
  config.disabled = flag(getenv, "MFU_DISABLE", false, lines);
  config.detect = flag(getenv, "MFU_DETECT", true, lines);
}

void read_peak_overrides(const Getenv& getenv, Config& config, Lines* lines) {
  if (const auto value = positive_number(getenv, "MFU_PEAK_TFLOPS", lines, "ignored")) config.peak.tflops = value;
  if (const auto value = positive_number(getenv, "MFU_PEAK_GBPS", lines, "ignored")) config.peak.gbps = value;
}

/// One printable line: names and values in it come from outside.
std::string one_line(std::string line) {
  constexpr std::size_t kLongest = 1000;
  if (line.size() > kLongest) line.resize(kLongest);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

/// \param strict the first wrong value is an Error (a person waits); otherwise everything becomes lines.
Result<Config> load(const char* source, std::string_view origin, const Getenv& getenv, const char* const* environ_block,
                    bool strict) {
  Config config;
  read_environment(getenv, config, &config.warnings);
  check_spelling(environ_block, &config.warnings);
  if (config.disabled) return config;
  FlopsOptions options;
  Resolved resolved;
  std::optional<Error> model_error;
  if (source != nullptr) {
    Result<Resolved> found = resolve(source, origin, getenv);
    if (found) {
      resolved = std::move(*found);
    } else {
      model_error = found.error();
    }
  }
  if (resolved.place.empty()) resolved.place = "MFU_SET: ";
  if (resolved.model_place.empty()) resolved.model_place = "MFU_SET: model.";
  Lines lines;
  Lines overridden;
  if (const char* overrides = value_of(getenv, "MFU_SET"))
    overridden = apply_overrides(overrides, resolved.root, &lines);
  if (!resolved.root.is_object()) resolved.root = json::object();
  std::optional<Error> read_error;
  read_config(resolved, config, options, &lines, &read_error);
  // A value that MFU_SET gave is not to be looked for in the file.
  for (std::string& line : lines) {
    for (const std::string& key : overridden) {
      if (line.starts_with(resolved.place + key + ":")) line.replace(0, resolved.place.size(), "MFU_SET: ");
    }
  }
  if (!model_error) model_error = read_error;
  read_peak_overrides(getenv, config, &config.warnings);
  if (strict && model_error) return *model_error;
  if (strict) {
    // Unknown keys leave a usable config; wrong values do not.
    for (const std::string& line : lines) {
      if (line.find(": unknown key") == std::string::npos) return Error{line.substr(0, line.rfind("; "))};
    }
  }
  config.warnings.insert(config.warnings.end(), lines.begin(), lines.end());
  if (model_error) config.warnings.push_back(model_error->message + "; measuring time only");
  config.resolved_json = resolved_json(config, options);
  return config;
}

}  // namespace

Config load_config(const Getenv& getenv, const char* const* environ_block) {
  try {
    Result<Config> config =
        load(value_of(getenv, "MFU_MODEL_CONFIG"), "MFU_MODEL_CONFIG", getenv, environ_block, false);
    if (config) {
      for (std::string& line : config->warnings) line = one_line(std::move(line));
      return std::move(*config);
    }
  } catch (...) {  // out of memory: the host goes on, without a model
  }
  Config fallback;
  fallback.warnings.emplace_back("MFU_MODEL_CONFIG: could not be read; measuring time only");
  return fallback;
}

Result<Config> load_config_file(std::string_view source, const Getenv& getenv) {
  try {
    Result<Config> config = load(std::string(source).c_str(), "", getenv, nullptr, true);
    if (!config) return Error{one_line(config.error().message)};
    for (std::string& line : config->warnings) line = one_line(std::move(line));
    return config;
  } catch (...) {
    return Error{"out of memory while reading the config"};
  }
}

}  // namespace mfu
