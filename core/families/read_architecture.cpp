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
#include "core/families/special_families.h"
#include "core/families/weight_storage.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Messages about a missing type say how to go on.
std::string ways_on() {
  return "name the family that it is like (--as FAMILY, or model_type), or describe it as {\"d_model\", "
         "\"vocab_size\", "
         "\"layers\": [...]} or {\"params\": N}; mfu flops --list prints what is known";
}

/// True for a class of diffusers, which is written with capitals; model types are not.
bool is_class(std::string_view type) noexcept {
  return !type.empty() && type.front() >= 'A' && type.front() <= 'Z' &&
         (type.find("Transformer") != type.npos || type.find("Model") != type.npos);
}

/// True if the table or code of its own describes the type.
bool is_known(std::string_view type) { return FamilyTable::built_in().has(type) || is_special(type); }

/// True if `f` has what the generic reader needs to count a decoder.
bool looks_like_decoder(const Fields& f) {
  return f.find("hidden_size|d_model|n_embd|dim") != nullptr &&
         f.find("num_hidden_layers|n_layer|n_layers|num_layers") != nullptr &&
         f.find("num_attention_heads|n_head|n_heads|num_heads") != nullptr && f.find("vocab_size") != nullptr;
}

/// The object with the language model of a config whose type nobody knows: itself, or a part by its usual name.
Fields decoder_part(const Fields& f) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "decoder_config"}) {
    const json* part = f.find(key);
    if (part != nullptr && part->is_object()) return decoder_part(f.child(key));
  }
  return f;
}

/// Keys of `f` that tell of parts which the generic reader does not know: those are refused, never counted as a plain
/// decoder. nullptr: none.
const char* beyond_generic(const Fields& f) {
  for (const char* key : {"conv_dim",
                          "num_feat_extract_layers",
                          "image_size",
                          "patch_size",
                          "num_mel_bins",
                          "num_codebooks",
                          "codebook_size",
                          "type_vocab_size",
                          "hidden_size_per_layer_input",
                          "per_layer_config",
                          "swa_num_key_value_heads",
                          "index_n_heads",
                          "sparse_attention_config",
                          "num_global_key_value_heads",
                          "max_relative_positions",
                          "num_random_blocks",
                          "is_encoder_decoder",
                          "kv_lora_rank",
                          "index_topk",
                          "linear_num_key_heads",
                          "linear_num_heads",
                          "linear_attn_config",
                          "mamba_d_state",
                          "ssm_state_size",
                          "state_size",
                          "mamba_num_heads",
                          "conv_L_cache",
                          "hybrid_override_pattern",
                          "layers_block_type",
                          "attn_type_list",
                          "encoder_layers",
                          "num_encoder_layers",
                          "block_configs",
                          "hc_mult",
                          "altup_num_inputs",
                          "num_kv_shared_layers",
                          "cross_attention_layers",
                          "rwkv",
                          "decay_low_rank_dim",
                          "block_types",
                          "zero_expert_num",
                          "lru_width"}) {
    const json* value = f.find(key);
    if (value == nullptr || (value->is_number() && value->get<double>() == 0) ||
        (value->is_boolean() && !value->get<bool>()))
      continue;
    return key;
  }
  return nullptr;
}

/// A dense or mixture-of-experts decoder by the usual key names, for types that nobody has heard of.
void read_generic(const Fields& f, std::string_view type, ModelHead head, Architecture& spec) {
  const Fields text = decoder_part(f);
  const std::string inner = text.text_or("model_type", type);
  if (&text.object() != &f.object() && is_known(inner)) {
    read_typed(text, inner, true, head, spec);
    spec.assumed.push_back("model_type: \"" + std::string(type) + "\" is not known; only its language model, " + inner +
                           ", is counted");
    return;
  }
  const json* list = f.find("architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string() &&
      list->front().get<std::string>().ends_with("ForMaskedLM")) {
    f.problem(f.place() + "model_type: \"" + std::string(type) +
              "\" is not known, and its class is that of an encoder; nearest: " + nearest_model_types(type) + "; " +
              ways_on());
    return;
  }
  if (const char* key = beyond_generic(text)) {
    f.problem(f.place() + "model_type: \"" + std::string(type) + "\" is not known, and its " + key +
              " is beyond a plain decoder; nearest: " + nearest_model_types(type) + "; " + ways_on());
    return;
  }
  build_row(kGenericRow, text, head, spec);
  spec.assumed.push_back("model_type: \"" + std::string(type) +
                         "\" is not known (nearest: " + nearest_model_types(type, 1) +
                         "); counted as a decoder by the usual key names, without biases");
}

/// What the class in `architectures` puts behind the layers. A class that is not known is taken for the family's own,
/// and said.
ModelHead head_of(const Fields& f, Architecture& spec) {
  const json* list = f.find("architectures");
  if (list == nullptr || !list->is_array() || list->empty() || !list->front().is_string()) return ModelHead::kOwn;
  const std::string name = list->front().get<std::string>();
  const auto ends = [&name](std::string_view word) { return name.ends_with(word); };
  for (std::string_view own :
       {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "DoubleHeadsModel", "ChatGLMModel",
        "ForSpeechSeq2Seq", "ForCTC", "ForSeq2SeqLM", "MTModel", "ForRetrieval"}) {
    if (ends(own)) return ModelHead::kOwn;
  }
  if (ends("ForSequenceClassification") || ends("ForRewardModel") || ends("ForMultipleChoice") ||
      ends("ForImageClassification") || ends("ForVideoClassification") || ends("ForAudioClassification"))
    return ModelHead::kSequence;
  if (ends("ForPreTraining")) return ModelHead::kPreTraining;
  if (ends("ForTokenClassification") || ends("ForQuestionAnswering")) return ModelHead::kToken;
  if (ends("EncoderModel")) return ModelHead::kEncoder;
  if (ends("Model") || ends("Encoder") || ends("Transformer") || ends("Backbone")) return ModelHead::kNone;
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

/// Files that lie beside a model's config and are given by mistake: what they are, and what to give. True: it is one.
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

void read_any(const Fields& f, std::optional<Error>* problem, Architecture& spec) {
  if (refuse_other_files(f)) return;
  if (const json* type = f.find("model_type")) {
    const std::string text = type->is_string() ? type->get<std::string>() : std::string();
    spec.family = text;
    const ModelHead head = head_of(f, spec);
    if (const json* list = f.find("architectures"); list != nullptr && list->is_array() && !list->empty() &&
                                                    list->front().is_string() &&
                                                    list->front().get<std::string>().ends_with("Eagle3")) {
      spec.assumed.clear();
      read_eagle3(f, spec);
    } else if (is_known(text) && text != "nanogpt") {
      read_typed(f, text, false, head, spec);
    } else if (!text.empty() && looks_like_decoder(decoder_part(f))) {
      read_generic(f, text, head, spec);
    } else {
      f.problem(f.place() + "model_type: expected a supported model type, got " + brief(*type) +
                "; nearest: " + nearest_model_types(text) + "; " + ways_on());
    }
    if (f.failed()) return;
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  if (const json* type = f.find("_class_name"); type != nullptr && type->is_string()) {  // a part of diffusers
    spec.family = type->get<std::string>();
    if (!is_known(spec.family)) {
      f.problem(f.place() + "_class_name: expected a supported class of diffusers, got " + brief(*type) +
                "; nearest: " + nearest_model_types(spec.family) + "; mfu flops --list prints what is known");
      return;
    }
    read_typed(f, spec.family, false, ModelHead::kOwn, spec);
    if (!f.failed()) spec.compute_dtype = stated_dtype(f);
    return;
  }
  const bool meta = f.find("dim") != nullptr && f.find("n_layers") != nullptr && f.find("n_heads") != nullptr;
  const bool megatron = f.find("num_layers") != nullptr && f.find("hidden_size") != nullptr &&
                        f.find("num_attention_heads") != nullptr && f.find("d_model") == nullptr;
  if (meta || megatron) {  // params.json of Meta and Mistral; arguments of DeepSeek's code and of Megatron-LM
    const bool latent = meta && f.find("kv_lora_rank") != nullptr && f.find("inter_dim") != nullptr;
    spec.family = latent ? "deepseek_args" : meta ? "meta_params" : "megatron_args";
    read_typed(f, spec.family, false, ModelHead::kOwn, spec);
    if (!f.failed()) spec.compute_dtype = stated_dtype(f);
    return;
  }
  if (f.find("n_layer") != nullptr && f.find("n_head") != nullptr && f.find("n_embd") != nullptr) {
    // GPTConfig of nanoGPT and nanoMoE, or that of nanochat. vocab_size 50304 unless given, bias true.
    const bool chat = f.find("n_kv_head|window_pattern|sequence_len") != nullptr;
    spec.family = chat ? "nanochat_args" : "nanogpt";
    json args = f.object();
    if (!chat && f.find("block_size") == nullptr) args["block_size"] = 1024;
    if (f.find("vocab_size") == nullptr) args["vocab_size"] = 50304;
    const Fields filled(args, f.place(), problem);
    read_typed(filled, spec.family, false, ModelHead::kOwn, spec);
    if (f.failed()) return;
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  if (f.find("layers") != nullptr) {
    read_own(f, problem, spec);
    return;
  }
  if (f.find("params") != nullptr) {
    spec.family = "params";
    spec.flat_params = read_params(f);
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  f.problem(f.place() + "model_type: expected a model type, but it is missing; " + ways_on());
}

}  // namespace

void read_typed(const Fields& f, std::string_view type, bool nested, ModelHead head, Architecture& spec) {
  if (FamilyTable::built_in().has(type)) {
    // Alone a config must say its dimensions; what it may leave out is what its class takes.
    build_row(type, nested ? f.with_defaults(class_defaults(type)) : f.with_optional_defaults(class_defaults(type)),
              head, spec);
    return;
  }
  if (is_special(type)) {
    build_special(type, f, head, spec);
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
  std::string wanted;
  for (char c : type.substr(0, 64)) wanted += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
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
  for (std::string_view type : special_types()) types.push_back(type);
  return types;
}

}  // namespace mfu
