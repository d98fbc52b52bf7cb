// `mfu flops`: FLOP, bytes, parameters and the roofline of a model and a shape; as a table, Markdown or JSON.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/say.h"
#include "core/families/architecture_json.h"
#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"
#include "core/ranges/region_rules.h"
#include "tools/commands/commands.h"
#include "tools/flops/flops_report.h"
#include "tools/flops/flops_text.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

/// `mfu flops --list`: the model types, as many to a line as fit.
void print_types() {
  std::vector<std::string_view> types = known_model_types();
  std::sort(types.begin(), types.end());
  std::string line;
  for (std::string_view type : types) {
    if (line.size() + type.size() + 2 > 100) {
      say("{}\n", line);
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + std::string(type);
  }
  say("{}\n{} model types; others by the usual key names of decoders, marked as assumed\n", line, types.size());
}

/// For an option: the mistake in its text, or nothing. By the words that the config takes too.
std::string convention_word(const std::string& text) {
  if (text == "exact-full" || parse_convention(text)) return "";
  return "expected exact, exact-full, palm, nanogpt, torchtitan, torchtitan-2026, megatron, kaplan, chinchilla or 6nd, "
         "got \"" +
         text + "\"";
}
std::string dtype_word(const std::string& text) {
  return parse_dtype(text) ? ""
                           : "expected a number format such as bf16, fp16, fp8, tf32 or int8, got \"" + text + "\"";
}
std::string image_size(const std::string& text) {
  unsigned height = 0, width = 0;
  int end = 0;
  constexpr unsigned kMost = 1 << 20;
  const bool is_size = text.find_first_not_of("0123456789xX") == std::string::npos &&
                       std::sscanf(text.c_str(), "%9u%*1[xX]%9u%n", &height, &width, &end) == 2 &&
                       static_cast<std::size_t>(end) == text.size() && height > 0 && width > 0 && height <= kMost &&
                       width <= kMost;
  return is_size ? "" : "expected HEIGHTxWIDTH in pixels, such as 896x896, got \"" + text + "\"";
}

int run_flops(const FlopsCall& call) {
  if (call.list) {
    print_types();
    return 0;
  }
  if (!call.as.empty()) {
    const auto types = known_model_types();
    if (std::find(types.begin(), types.end(), call.as) == types.end()) {
      return say_error("flops",
                       "--as: expected a model type, got \"" + call.as + "\"; nearest: " + nearest_model_types(call.as),
                       kUsageError);
    }
    say(stderr, "mfu flops: counted as {} because --as says so; keys that {} does not have are not understood\n",
        call.as, call.as);
  }
  if (const auto understood = check_call(call); !understood)
    return say_error("flops", understood.error().message, kUsageError);
  const Result<Config> config = config_of(call);
  if (!config) return say_error("flops", config.error().message, 1);
  FlopsJob job;
  if (!call.config.empty()) {
    std::vector<std::string> warnings = config->warnings;
    const RegionRules compiled(config->regions, config->presets, warnings);  // a mistake here is a mistake in a run too
    for (const std::string& line : warnings) say_error("flops", line);
    if (!config->model) return say_error("flops", call.config + ": model: expected a model, but the config names none");
    Result<FlopsJob> made = make_job(call, *config);
    if (!made) return say_error("flops", made.error().message, kUsageError);
    job = std::move(*made);
  }
  const Result<AskedPeak> asked = peak_of(call, *config);
  if (!asked) return say_error("flops", asked.error().message, kUsageError);
  const Result<FlopsReport> report = make_report(call, *config, job, *asked);
  if (!report) return say_error("flops", report.error().message, 1);
  if (call.schema) {
    if (config->model) say("{}\n", Lines{Json::parse(spec_json(config->model->spec())).dump(2)});
    return 0;
  }
  if (call.json) {
    say("{}\n", Lines{report->json.dump(2, ' ', false, Json::error_handler_t::replace)});
  } else if (call.markdown) {
    print_markdown(*report);
  } else {
    print_table(*report);
  }
  return 0;
}

}  // namespace

void add_flops(CommandLine& line) {
  Command command = line.command("flops", "What MFU multiplies by: FLOP, bytes and parameters, component by component");
  const auto call = std::make_shared<FlopsCall>();
  command.option("config", call->config, "config file, folder, model id in the Hugging Face cache, or JSON text");
  command.option("--as", call->as, "read the config as one of this model type", {.type = "FAMILY"});
  command.flag("--list", call->list, "print the model types that are known");
  command.option("--by", call->by, "a table of modules as well: layers of each kind, towers, projectors",
                 {.one_of = {"module"}});
  command.option("--phase", call->phase, "what the work is", {.one_of = {"train", "prefill", "decode"}});
  command.option("--batch", call->batch, "sequences", {.between = kFromOne});
  command.option("--seq-len", call->seq_len, "new tokens per sequence and pass", {.between = kFromZero});
  command.option("--seq-lens", call->seq_lens, "new tokens of each sequence, for ragged batches",
                 {.between = kFromZero, .separator = ','});
  command.option("--context", call->context, "tokens already cached per sequence", {.between = kFromZero});
  command.option("--contexts", call->contexts, "tokens already cached of each sequence",
                 {.between = kFromZero, .separator = ','});
  command.option("--new-tokens", call->new_tokens, "decode passes, over a growing context", {.between = kFromZero});
  command.option("--documents", call->documents, "documents that are packed into each training sequence",
                 {.between = kFromOne});
  command.option("--grad-accum", call->grad_accum, "micro-batches per step", {.between = kFromOne});
  for (const auto& [name, size, what] : {std::tuple("--tp", &call->tp, "ranks that share each layer (tensor parallel)"),
                                         std::tuple("--pp", &call->pp, "ranks that share the layers (pipeline)"),
                                         std::tuple("--cp", &call->cp, "ranks that share each sequence (context)"),
                                         std::tuple("--ep", &call->ep, "ranks that share the experts"),
                                         std::tuple("--dp", &call->dp, "ranks that share --batch (data parallel)")})
    command.option(name, *size, what, {.between = {1, 1 << 20}});
  command.option("--encoder-len", call->encoder_len, "encoder tokens per sequence (encoder-decoder models)",
                 {.between = kFromZero});
  command.option("--encoder-runs", call->encoder_runs, "whether the encoder is part of the work",
                 {.one_of = {"yes", "no"}});
  command.option("--attention", call->attention, "which query-key pairs count",
                 {.one_of = {"causal", "full", "full_windowed"}});
  command.option("--context-mode", call->context_mode, "context of decode passes after the first",
                 {.one_of = {"auto", "fixed", "max"}});
  command.option("--images", call->images, "images of the vision tower, HEIGHTxWIDTH each",
                 {.type = "SIZE", .check = image_size, .separator = ','});
  command.option("--logits", call->logits, "rows of the output matrix", {.one_of = {"all", "last"}});
  command.option("--convention", call->convention,
                 "exact, exact-full, palm, nanogpt, torchtitan, torchtitan-2026, megatron, kaplan, chinchilla, 6nd",
                 {.type = "NAME", .check = convention_word});
  command.option("--recompute", call->recompute, "what the backward pass computes again",
                 {.one_of = {"none", "flash", "selective", "full"}});
  command.option("--gpu", call->gpu, "device for the peak and the roofline", {.type = "GPU"});
  command.option("--dtype", call->dtype, "dtype of the matmul operands", {.type = "DTYPE", .check = dtype_word});
  command.option("--weight-dtype", call->weight_dtype, "dtype of every weight in memory",
                 {.type = "DTYPE", .check = dtype_word});
  command.option("--kv-dtype", call->kv_dtype, "dtype of the cache", {.type = "DTYPE", .check = dtype_word});
  command.flag("--sparse", call->sparse, "divide by the 2:4 sparse peak");
  command.option("--kernel", call->kernel, "one kernel's share instead of the model",
                 {.one_of = {kKernelKinds.begin(), kKernelKinds.end()}});
  command.option("--m", call->m, "rows of the GEMM", {.between = kFromOne});
  command.option("--n", call->n, "columns of the GEMM", {.between = kFromOne});
  command.option("--k", call->k, "inner dimension of the GEMM", {.between = kFromOne});
  command.flag("--json", call->json, "JSON, a contract");
  command.flag("--markdown", call->markdown, "a Markdown table");
  command.flag("--schema", call->schema, "the model as resolved, in the project's own schema");
  command.group("Shape", {"--phase", "--batch", "--seq-len", "--seq-lens", "--context", "--contexts", "--new-tokens",
                          "--grad-accum", "--encoder-len", "--encoder-runs", "--images"});
  command.group("This rank's share", {"--tp", "--pp", "--cp", "--ep", "--dp"});
  command.group("Counting", {"--attention", "--context-mode", "--logits", "--convention", "--recompute",
                             "--weight-dtype", "--kv-dtype"});
  command.group("Peak and roofline", {"--gpu", "--dtype", "--sparse"});
  command.group("One kernel", {"--kernel", "--m", "--n", "--k"});
  command.group("Output", {"--json", "--markdown", "--schema", "--list"});
  command.footer({"mfu flops config.json --phase train --batch 8 --seq-len 4096",
                  "mfu flops Qwen/Qwen3-8B --phase decode --batch 32 --context 2048 --gpu H100",
                  "mfu flops config.json --convention palm --json",
                  "mfu flops config.json --phase train --batch 8 --seq-len 4096 --tp 8",
                  "mfu flops --kernel gemm --m 4096 --n 4096 --k 4096 --gpu H100 --dtype bf16"},
                 "0; 1 when the config cannot be read or its work cannot be counted");
  command.action([call] { return run_flops(*call); });
}

}  // namespace mfu
