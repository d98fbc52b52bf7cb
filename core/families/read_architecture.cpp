#include "core/families/read_architecture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/edit_distance.h"
#include "core/base/json_fields.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/families/class_defaults.h"
#include "core/families/family_rows.h"
#include "core/families/family_table.h"
#include "core/families/own_schema.h"
#include "core/families/unet.h"
#include "core/families/weight_storage.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Messages about a missing type say how to go on.
std::string ways_on() {
  return "name the family that it is like (--as FAMILY, or model_type), or describe it as {\"d_model\", "
         "\"vocab_size\", \"layers\": [...]} or {\"params\": N}; mfu flops --list prints what is known";
}

/// True for a class of diffusers, which is written with capitals; model types are not.
bool is_class(std::string_view type) noexcept {
  return !type.empty() && type.front() >= 'A' && type.front() <= 'Z' &&
         (type.find("Transformer") != type.npos || type.find("Model") != type.npos);
}

/// True if the table or separate code describes the type.
bool is_known(std::string_view type) { return FamilyTable::built_in().has(type) || type == kUNetType; }

/// True if `f` has what the generic reader needs to count a decoder.
bool looks_like_decoder(const Fields& f) {
  return f.find("hidden_size|d_model|n_embd|dim") != nullptr &&
         f.find("num_hidden_layers|n_layer|n_layers|num_layers") != nullptr &&
         f.find("num_attention_heads|n_head|n_heads|num_heads") != nullptr && f.find("vocab_size") != nullptr;
}

/// The object with the language model of a config whose type is unknown: itself, or a part by its usual name.
Fields decoder_part(const Fields& f) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "decoder_config"}) {
    const json* part = f.find(key);
    if (part != nullptr && part->is_object()) return decoder_part(f.child(key));
  }
  return f;
}

/// The first key of `f` that belongs to a part which the generic reader does not know: such a config is refused, never
/// counted as a plain decoder. Empty: none.
std::string_view beyond_generic(const Fields& f) {
  const Result<const FamilyRow*> row = FamilyTable::built_in().row(kGenericRow);
  for (std::string_view key : words_of(row ? (*row)->text("refused_keys") : std::string_view())) {
    const json* value = f.find(key);
    if (value != nullptr && *value != 0 && *value != false) return key;
  }
  return {};
}

/// A dense or mixture-of-experts decoder by the usual key names, for types that are unknown.
void read_generic(const Fields& f, std::string_view type, ModelHead head, Architecture& spec) {
  const Fields text = decoder_part(f);
  const std::string inner = text.text_or("model_type", type);
  if (&text.object() != &f.object() && is_known(inner)) {
    read_typed(text, inner, true, head, spec);
    spec.assumed.push_back("model_type: \"" + std::string(type) + "\" is not known; only its language model, " + inner +
                           ", is counted");
    return;
  }
  if (class_of(f).ends_with("ForMaskedLM")) {
    f.problem(f.place() + "model_type: \"" + std::string(type) +
              "\" is not known, and its class is that of an encoder; nearest: " + nearest_model_types(type) + "; " +
              ways_on());
    return;
  }
  if (const std::string_view key = beyond_generic(text); !key.empty()) {
    f.problem(f.place() + "model_type: \"" + std::string(type) + "\" is not known, and its " + std::string(key) +
              " is beyond a plain decoder; nearest: " + nearest_model_types(type) + "; " + ways_on());
    return;
  }
  build_row(kGenericRow, text, head, spec);
  spec.assumed.push_back("model_type: \"" + std::string(type) +
                         "\" is not known (nearest: " + nearest_model_types(type, 1) +
                         "); counted as a decoder by the usual key names, without biases");
}

/// The head that the class in `architectures` puts behind the layers. An unknown class is the family's, and said.
ModelHead head_of(const Fields& f, Architecture& spec) {
  // In this order: the last ones end others too.
  constexpr std::pair<std::string_view, ModelHead> kHeads[] = {
      {"ForCausalLM LMHeadModel ForConditionalGeneration ForMaskedLM DoubleHeadsModel ChatGLMModel ForSpeechSeq2Seq "
       "ForCTC ForSeq2SeqLM MTModel ForRetrieval Eagle3",
       ModelHead::kOwn},
      {"ForSequenceClassification ForRewardModel ForMultipleChoice ForImageClassification ForVideoClassification "
       "ForAudioClassification",
       ModelHead::kSequence},
      {"ForPreTraining", ModelHead::kPreTraining},
      {"ForTokenClassification ForQuestionAnswering", ModelHead::kToken},
      {"EncoderModel", ModelHead::kEncoder},
      {"Model Encoder Transformer Backbone", ModelHead::kNone},
  };
  const std::string name = class_of(f);
  if (name.empty()) return ModelHead::kOwn;
  for (const auto& [endings, head] : kHeads)
    for (const std::string_view ending : words_of(endings))
      if (name.ends_with(ending)) return head;
  spec.assumed.push_back("architectures: \"" + name + "\" is not known; counted as the family's own class");
  return ModelHead::kOwn;
}

/// Parameters as a number, or as people write it: `7B`.
std::int64_t read_params(const Fields& f) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const json* value = f.find("params");
  if (value != nullptr && value->is_string()) {
    const auto number = parse_count(value->get_ref<const std::string&>());
    if (number && *number >= 1 && *number <= static_cast<double>(kMost)) return std::llround(*number);
    f.wrong("params", "a number of parameters such as 7e9, 7B or 1.4T", value);
    return 1;
  }
  return f.require("params", 1, kMost);
}

/// Files beside a model's config that are given by mistake: says the kind, and the file to give. True: it is one.
bool refuse_other_files(const Fields& f) {
  if (f.find("peft_type") != nullptr) {
    const std::string base = f.text_or("base_model_name_or_path", "");
    f.problem(f.place() + "peft_type: this is an adapter, not a model; give the config of its base" +
              (base.empty() ? std::string() : ", " + printable(base)) + ", and \"trainable\": {\"lora_rank\": " +
              std::to_string(f.integer_or("r", 8, 1)) + "} to count the adapter");
    return true;
  }
  if (f.text_or("_class_name", "").ends_with("Pipeline")) {
    f.problem(f.place() + "_class_name: " + printable(f.text_or("_class_name", "")) +
              " is a pipeline of several models; give transformer/config.json or unet/config.json of it");
    return true;
  }
  if (f.find("model_type") == nullptr && f.find("tokenizer_class|image_processor_type|feature_extractor_type")) {
    f.problem(f.place() + "model_type: this is the config of a tokenizer or processor; give the model's config.json");
    return true;
  }
  return false;
}

/// A config without a model type is known by its keys: `a|b` is either, `!a` must not be there.
struct Format {
  std::string_view family, keys;
};
constexpr Format kFormats[] = {
    {"deepseek_args", "dim n_layers n_heads kv_lora_rank inter_dim"},  // arguments of DeepSeek's code
    {"meta_params", "dim n_layers n_heads"},                           // params.json of Meta and Mistral
    {"megatron_args", "num_layers hidden_size num_attention_heads !d_model"},
    {"nanochat_args", "n_layer n_head n_embd n_kv_head|window_pattern|sequence_len"},
    {"nanogpt", "n_layer n_head n_embd"},  // GPTConfig of nanoGPT and nanoMoE
};

/// Empty: none.
std::string_view format_of(const Fields& f) {
  for (const Format& format : kFormats) {
    const std::vector<std::string_view> keys = words_of(format.keys);
    if (std::all_of(keys.begin(), keys.end(), [&f](std::string_view key) {
          const bool absent = key.starts_with('!');
          return (f.find(key.substr(absent ? 1 : 0)) == nullptr) == absent;
        }))
      return format.family;
  }
  return {};
}

void read_model_type(const Fields& f, const json& type, Architecture& spec) {
  spec.family = type.is_string() ? type.get<std::string>() : std::string();
  const ModelHead head = head_of(f, spec);
  if (class_of(f).ends_with("Eagle3")) {
    build_row(kDraftRow, f, head, spec);
  } else if (is_known(spec.family) && spec.family != "nanogpt") {
    read_typed(f, spec.family, false, head, spec);
  } else if (!spec.family.empty() && looks_like_decoder(decoder_part(f))) {
    read_generic(f, spec.family, head, spec);
  } else {
    f.problem(f.place() + "model_type: expected a supported model type, got " + brief(type) +
              "; nearest: " + nearest_model_types(spec.family) + "; " + ways_on());
  }
}

void read_any(const Fields& f, std::optional<Error>* problem, Architecture& spec) {
  if (refuse_other_files(f)) return;
  const json* diffusers = f.find("_class_name");
  if (const json* type = f.find("model_type")) {
    read_model_type(f, *type, spec);
  } else if (diffusers != nullptr && diffusers->is_string()) {
    spec.family = diffusers->get<std::string>();
    if (is_known(spec.family)) {
      read_typed(f, spec.family, false, ModelHead::kOwn, spec);
    } else {
      f.problem(f.place() + "_class_name: expected a supported class of diffusers, got " + brief(*diffusers) +
                "; nearest: " + nearest_model_types(spec.family) + "; mfu flops --list prints what is known");
    }
  } else if (const std::string_view format = format_of(f); !format.empty()) {
    spec.family = format;
    read_typed(f, format, false, ModelHead::kOwn, spec);
  } else if (f.find("layers") != nullptr) {
    return read_own(f, problem, spec);
  } else if (f.find("params") != nullptr) {
    spec.family = "params";
    spec.flat_params = read_params(f);
  } else {
    f.problem(f.place() + "model_type: expected a model type, but it is missing; " + ways_on());
  }
  if (f.failed()) return;
  spec.compute_dtype = stated_dtype(f);
  read_quantization(f, spec);
}

}  // namespace

void read_typed(const Fields& f, std::string_view type, bool nested, ModelHead head, Architecture& spec) {
  if (FamilyTable::built_in().has(type)) {
    // Alone a config must say its dimensions; a key that it may leave out has the default of its class.
    build_row(type, nested ? f.with_defaults(class_defaults(type)) : f.with_optional_defaults(class_defaults(type)),
              head, spec);
    return;
  }
  if (type == kUNetType) {
    build_unet(f, spec);
    return;
  }
  f.problem(f.place() + "model_type: unknown decoder \"" + std::string(type) + "\"");
}

Result<Architecture> read_model(std::string_view text, std::string_view place) {
  Result<json> parsed = parse_json(text, place.substr(0, place.find(": ")));
  if (!parsed) return parsed.error();
  return read_parsed_model(*parsed, place);
}

Result<Architecture> read_parsed_model(const json& config, std::string_view place) {
  if (!config.is_object()) return Error{std::string(place) + "expected a JSON object, got " + brief(config)};
  std::optional<Error> problem;
  Architecture spec;
  const Fields fields(config, std::string(place), &problem);
  read_any(fields, &problem, spec);
  if (problem) return *problem;
  const ParamGroups groups = count_params(spec);
  if (!groups.total().fits() || !groups.active().fits()) {
    return Error{std::string(place) + "params: the parameter count is beyond 2^64; check the dimensions"};
  }
  return spec;
}

std::string nearest_model_types(std::string_view type, std::size_t most) {
  const std::string wanted = lower_case(type.substr(0, 64));
  std::vector<std::pair<std::int64_t, std::string_view>> ranked;
  for (std::string_view known : known_model_types()) {
    if (is_class(known) != is_class(type)) continue;
    // A shared beginning counts more than length: qwen3_omni is nearer to qwen3_vl than to any short name.
    const std::int64_t same =
        std::mismatch(wanted.begin(), wanted.end(), known.begin(), known.end()).first - wanted.begin();
    ranked.emplace_back(2 * static_cast<std::int64_t>(edit_distance(wanted, known)) - same, known);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
    text += (i > 0 ? ", " : "") + std::string(ranked[i].second);
  return text;
}

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> types = FamilyTable::built_in().types();
  types.push_back(kUNetType);
  return types;
}

}  // namespace mfu
