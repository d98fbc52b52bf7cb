#include "tools/trace/kineto.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/kernels/kernel_traits.h"
#include "tools/trace/event_scanner.h"
#include "tools/trace/json_text.h"
#include "tools/trace/kineto_document.h"
#include "tools/trace/kineto_event.h"
#include "tools/trace/operator_products.h"

namespace mfu {
namespace {

namespace ondemand = simdjson::ondemand;

bool is_scalar(std::string_view token) noexcept { return !token.empty() && token[0] != '{' && token[0] != '['; }

class KinetoReader : private KinetoDocument {
 public:
  KinetoReader(ByteSource source, const ReadProgress& progress) : KinetoDocument(std::move(source), progress) {
    trace_.path = source_.name();
    trace_.format = TraceFormat::kKineto;
    trace_.processes.push_back({"0", {}});
  }

  Result<Trace> read() {
    try {
      read_document();
      if (!other_profiler_.empty()) return Error{source_.name() + ": " + std::string(other_profiler_)};
      finish();
      return std::move(trace_);
    } catch (const Unusable& unusable) {
      return unusable.why;
    }
  }

 private:
  TraceNotes& notes() { return trace_.processes[0].notes; }

  // --- the document ---------------------------------------------------------------------------------------------

  void read_document() {
    std::optional<char> opening = peek_or_end();
    if (available() >= 3 && std::memcmp(buffer_.data() + begin_, "\xEF\xBB\xBF", 3) == 0) {
      begin_ += 3;
      opening = peek_or_end();
    }
    if (!opening) fail("holds no text: expected a Kineto JSON trace");
    if (*opening != '[' && *opening != '{') {
      fail_at(position(), fmt::format("found \"{}\": expected {{ or [, the start of a Kineto JSON trace",
                                      excerpt({buffer_.data() + begin_, available()})));
    }
    ++begin_;
    try {
      if (*opening == '[')
        read_events();
      else
        read_object();
      if (peek_or_end()) ++notes()["text_after_the_end"];
    } catch (const BreaksOff&) {
      cut_off_ = true;
    }
    if (source_.cut_off()) cut_off_ = true;
    if (source_.trailing_garbage()) ++notes()["text_after_the_end"];
    if (!seen_events_) {
      fail(cut_off_ ? "breaks off before its \"traceEvents\": expected a Kineto trace"
                    : "has no \"traceEvents\" array: expected a Kineto trace");
    }
    if (cut_off_) notes()["cut_off"] = 1;
  }

  void read_object() {
    for (bool first_key = true; peek() != '}'; first_key = false) {
      if (!first_key) expect(',', "expected , or } after a value");
      if (peek() != '"') expect('"', "expected a key in quotes");
      const std::size_t key_length = value_length();
      const std::string key = unescape(unquoted({buffer_.data() + begin_, key_length}));
      begin_ += key_length;
      expect(':', fmt::format("expected : after the key \"{}\"", excerpt(key)));
      const char first = peek();
      if (key == "traceEvents") {
        if (first != '[') {
          fail_at(position(), fmt::format("\"traceEvents\" is \"{}\": expected an array",
                                          excerpt({buffer_.data() + begin_, available()})));
        }
        ++begin_;
        read_events();
        continue;
      }
      trace_.top_level_keys.push_back(key);
      const std::size_t length = value_length();
      if (length == 0) fail_at(position(), fmt::format("key \"{}\" has no value: found '{}'", excerpt(key), first));
      take_metadata(key, {buffer_.data() + begin_, length});
      begin_ += length;
    }
    ++begin_;
  }

  /// Consumes `wanted`, which comes next.
  void expect(char wanted, std::string_view expected) {
    if (const char found = peek(); found != wanted) fail_at(position(), fmt::format("found '{}': {}", found, expected));
    ++begin_;
  }

  void take_metadata(std::string_view key, std::string_view json) {
    if (key == "metadata" && json.find("\"highres-ticks\"") != json.npos) other_profiler_ = kXProf;
    if (key != "deviceProperties" && key != "distributedInfo" && key != "baseTimeNanoseconds" && key != "mfu" &&
        key != "mfu_end") {
      return;
    }
    simdjson::dom::parser parser;
    simdjson::dom::element value;
    if (parser.parse(simdjson::padded_string(json)).get(value) != simdjson::SUCCESS) {
      ++notes()["metadata_not_readable"];
      return;
    }
    if (key == "baseTimeNanoseconds") {
      trace_.base_ns = integer(value).value_or(0);
    } else if (key == "distributedInfo") {
      trace_.rank = integer(value["rank"]);
      trace_.world_size = integer(value["world_size"]);
    } else if (key == "mfu") {
      take_recording(value);
    } else if (key == "mfu_end") {
      const std::int64_t left_out = integer(value["activities_left_out"]).value_or(0);
      if (left_out > 0) notes()["recording_left_out"] += static_cast<std::uint64_t>(left_out);
      if (left_out > 0 && trace_.recording) trace_.recording->whole_run = false;
    } else {
      take_devices(value);
    }
  }

  using Metadata = simdjson::dom::element;
  /// A number, or a text that is one; none of anything else.
  template <typename Value>
  static std::optional<std::int64_t> integer(const Value& from) {
    std::int64_t number = 0;
    std::string_view text;
    if (from.get(number) == simdjson::SUCCESS) return number;
    if (from.get(text) == simdjson::SUCCESS) return parse_integer<std::int64_t>(text);
    return std::nullopt;
  }

  void take_recording(const Metadata& mfu) {
    TraceFacts::Recording recording;
    recording.origin_ns = integer(mfu["origin_ns"]).value_or(0);
    recording.end_ns = integer(mfu["end_ns"]).value_or(0);
    recording.pid = integer(mfu["pid"]).value_or(0);
    if (mfu["whole_run"].get(recording.whole_run) != simdjson::SUCCESS) recording.whole_run = false;
    if (mfu["products"].get(recording.products) != simdjson::SUCCESS) recording.products = false;
    const auto sane = [](TimeNs t) { return t > kSmallestTimeNs && t < kLargestTimeNs; };
    if (sane(recording.origin_ns) && sane(recording.end_ns))
      trace_.recording = recording;
    else
      ++notes()["metadata_not_readable"];
  }

  void take_devices(const Metadata& properties) {
    simdjson::dom::array list;
    if (properties.get(list) != simdjson::SUCCESS) {
      ++notes()["metadata_not_readable"];
      return;
    }
    for (const Metadata entry : list) {
      DeviceFacts facts;
      std::string_view name;
      const auto number = [&entry](const char* key) { return integer(entry[key]).value_or(0); };
      if (entry["name"].get(name) == simdjson::SUCCESS) facts.name = name;
      facts.sm_count = static_cast<std::uint32_t>(number("numSms"));
      facts.cc_major = static_cast<std::uint32_t>(number("computeMajor"));
      facts.cc_minor = static_cast<std::uint32_t>(number("computeMinor"));
      facts.memory_bytes = static_cast<std::uint64_t>(number("totalGlobalMem"));
      // Only in traces that the library recorded.
      facts.clock_khz = static_cast<std::uint32_t>(number("clockRate"));
      facts.memory_clock_khz = static_cast<std::uint32_t>(number("memoryClockRate"));
      facts.memory_bus_bits = static_cast<std::uint32_t>(number("memoryBusWidth"));
      device_facts_[std::to_string(number("id"))] = facts;
    }
  }

  // --- the events -----------------------------------------------------------------------------------------------

  /// From just after the `[` to just after its `]`, or to the end of a file that breaks off.
  void read_events() {
    seen_events_ = true;
    EventScanner scanner;
    std::size_t scanned = 0;  // bytes from begin_ that the scanner has seen
    for (bool first = true;;) {
      const EventScanner::Found found = scanner.scan({buffer_.data() + begin_ + scanned, available() - scanned});
      std::size_t length =
          found.array_end != 0 ? scanned + found.array_end - 1 : (found.last_end != 0 ? scanned + found.last_end : 0);
      if (length != 0 || found.array_end != 0) {
        // Elements of the array have a comma before them, except the first.
        std::size_t start = 0;
        while (start < length && is_json_space(buffer_[begin_ + start])) ++start;
        const bool any = start < length;
        if (any && !first) {
          if (buffer_[begin_ + start] != ',') {
            fail_at(position() + start, fmt::format("found '{}': expected , or ] after an event",
                                                    excerpt({buffer_.data() + begin_ + start, 1})));
          }
          ++start;
        }
        if (any) {
          first = false;
          parse_piece(begin_ + start, length - start);
        }
        begin_ += length;
        if (found.array_end != 0) {
          ++begin_;
          return;
        }
      }
      scanned = available();
      if (!fill()) throw BreaksOff{};
    }
  }

  /// Parses the whole elements at [at, at + length) of the buffer, which has no comma before them.
  void parse_piece(std::size_t at, std::size_t length) {
    char* text = buffer_.data() + at - 1;  // at least the `[` or the added comma: made an array in place
    const char before = text[0];
    const char after = text[length + 1];
    text[0] = '[';
    text[length + 1] = ']';
    length += 2;
    ondemand::document document;
    const std::size_t capacity = buffer_.size() - (at - 1);
    simdjson::error_code code = parser_.iterate(text, length, capacity).get(document);
    if (code == simdjson::UTF8_ERROR || code == simdjson::UNESCAPED_CHARS) {
      const SpoiltText spoilt = mend_json({text, length});
      if (spoilt.bytes_not_utf8 > 0) notes()["bytes_not_utf8"] += spoilt.bytes_not_utf8;
      if (spoilt.bytes_not_utf8 == 0 || spoilt.control_characters > 0) notes()["pieces_with_control_characters"] += 1;
      code = parser_.iterate(text, length, capacity).get(document);
    }
    const char* where = text;
    if (code == simdjson::SUCCESS) {
      code = parse_events(document);
      const char* stopped = nullptr;
      if (code != simdjson::SUCCESS && document.current_location().get(stopped) == simdjson::SUCCESS) where = stopped;
    }
    if (code != simdjson::SUCCESS) {
      const auto offset = static_cast<std::uint64_t>(where - buffer_.data());
      fail_at(consumed_ + offset - kHeadroom,
              fmt::format("event {} is not valid JSON near \"{}\": {}", trace_.events,
                          excerpt({where, std::min<std::size_t>(40, text + length - where)}),
                          simdjson::error_message(code)));
    }
    text[0] = before;
    text[length - 1] = after;
  }

  simdjson::error_code parse_events(ondemand::document& document) {
    ondemand::array array;
    if (const auto code = document.get_array().get(array); code != simdjson::SUCCESS) return code;
    for (auto element : array) {
      ondemand::value value;
      if (const auto code = std::move(element).get(value); code != simdjson::SUCCESS) return code;
      ++trace_.events;
      ondemand::json_type type{};
      // The type of a word such as NaN is not known.
      if (value.type().get(type) != simdjson::SUCCESS || type != ondemand::json_type::object) {
        ++notes()["elements_that_are_no_events"];
        continue;
      }
      ondemand::object object;
      if (const auto code = value.get_object().get(object); code != simdjson::SUCCESS) return code;
      KinetoEvent event;
      if (const auto code = event_parser_.parse(object, trace_.recording.has_value(), event); code != simdjson::SUCCESS)
        return code;
      take(event);
    }
    return simdjson::SUCCESS;
  }

  // --- what an event becomes ------------------------------------------------------------------------------------

  void take(const KinetoEvent& event) {
    if (event.phase == 'B' || event.phase == 'E') return take_half(event);
    if (event.phase != 'X') return;
    if (event.category == KinetoCategory::kScope) other_profiler_ = kProton;
    if (event.category == KinetoCategory::kUnknown && event.pid.ends_with(" functions\"")) other_profiler_ = kAutograd;
    const bool step = event.name.starts_with("\"ProfilerStep#");
    const bool other = event.category == KinetoCategory::kOther || event.category == KinetoCategory::kOldOperator;
    if (event.category == KinetoCategory::kUnknown || event.category == KinetoCategory::kSession) return;
    const bool product = event.category == KinetoCategory::kOther && !event.dims.empty();
    if (other && !product && !(step && event.category == KinetoCategory::kOldOperator)) return;

    TimeNs begin_ns = 0;
    TimeNs end_ns = 0;
    if (!read_times(event, begin_ns, end_ns)) {
      ++notes()["events_with_unusable_time"];
      return;
    }
    if (product) take_operator(event, begin_ns, end_ns);
    std::uint64_t id = 0;
    const bool has_id = !event.correlation.empty() && parse_id(event.correlation, id);
    if (!event.correlation.empty() && !has_id) ++notes()["correlation_ids_that_are_no_number"];

    if (event.category == KinetoCategory::kHostCall)
      take_host_call(event, {begin_ns, end_ns}, has_id ? std::optional(id) : std::nullopt);
    else if (needs_args(event.category))
      take_activity(event, {begin_ns, end_ns}, has_id ? std::optional(id) : std::nullopt);
    else if (event.category == KinetoCategory::kGpuAnnotation)
      ++notes()["gpu_user_annotations"];
    else if (step || event.category == KinetoCategory::kUserAnnotation)
      take_range(event, begin_ns, end_ns);
  }

  void take_activity(const KinetoEvent& event, const Interval& time, std::optional<std::uint64_t> id) {
    TraceActivity activity;
    activity.begin_ns = time.begin_ns;
    activity.end_ns = time.end_ns;
    activity.name = name_id(event.name);
    activity.stream = stream_of(event);
    activity.process =
        static_cast<std::uint16_t>(trace_.devices[trace_.streams[activity.stream].device].process & 0xFFFFu);
    activity.correlation = id.value_or(0);
    activity.has_correlation = id.has_value();
    activity.kind = event.category == KinetoCategory::kKernel   ? ActivityKind::kKernel
                    : event.category == KinetoCategory::kMemcpy ? ActivityKind::kMemcpy
                                                                : ActivityKind::kMemset;
    if (activity.kind == ActivityKind::kKernel) {
      activity.nccl = flags_of(activity.name).nccl;
      activity.extent = pack(parse_grid(event.grid));
      if (!event.product.empty()) take_product(event.product);
    } else {
      if (activity.kind == ActivityKind::kMemcpy)
        activity.direction = static_cast<std::uint8_t>(flags_of(activity.name).direction) & 3u;
      if (!event.bytes.empty()) activity.extent = parse_integer<std::uint64_t>(event.bytes).value_or(0);
    }
    trace_.activities.push_back(activity);
  }

  void take_host_call(const KinetoEvent& event, const Interval& time, std::optional<std::uint64_t> id) {
    const std::uint32_t name = name_id(event.name);
    if (!id) return;
    const NameFlags& flags = flags_of(name);
    TraceLaunch launch = flags.launch;
    launch.begin_ns = time.begin_ns;
    launch.end_ns = time.end_ns;
    launch.correlation = *id;
    launch.name = name;
    launch.thread = thread_of(event) & 0xFFFFFFu;
    trace_.launches.push_back(launch);
  }

  void take_operator(const KinetoEvent& event, TimeNs begin_ns, TimeNs end_ns) {
    const std::optional<Product> product =
        product_of_operator(unquoted(event.name), event.dims, event.strides, event.types);
    if (product) trace_.operators.push_back({begin_ns, end_ns, thread_of(event), *product});
  }

  /// Of the activity that comes next.
  void take_product(std::string_view text) {
    const auto product = recorded_product(text);
    if (!product) return;
    trace_.product_of_activity.resize(trace_.activities.size() + 1);
    trace_.product_of_activity.back() = {product->first, product->second};
  }

  /// The begin or the end of something. They lie anywhere in the file, so pairs are made when all are read.
  void take_half(const KinetoEvent& event) {
    if (needs_args(event.category) && event.category != KinetoCategory::kUnknown) {
      ++notes()["begin_end_events_left_out"];
      return;
    }
    const std::optional<TimeNs> at = parse_us_as_ns(unquoted(event.ts));
    TimeNs end_ns = at.value_or(0);
    if (!at || !check_times(*at, end_ns, notes())) {
      ++notes()["events_with_unusable_time"];
      return;
    }
    const bool range = event.category == KinetoCategory::kUserAnnotation;
    halves_.push_back(
        {*at, event.phase == 'B', range, range && event.phase == 'B' ? name_id(event.name) : 0, thread_of(event)});
  }

  void pair_halves() {
    std::stable_sort(halves_.begin(), halves_.end(), [](const Half& a, const Half& b) { return a.at < b.at; });
    std::unordered_map<std::uint32_t, std::vector<const Half*>> open;  // by thread
    for (const Half& half : halves_) {
      std::vector<const Half*>& stack = open[half.thread];
      if (half.begins) {
        stack.push_back(&half);
      } else if (!stack.empty()) {
        const Half& begin = *stack.back();
        stack.pop_back();
        if (begin.range) add_range(begin.name, begin.thread, begin.at, half.at);
      }
    }
    for (const auto& [thread, stack] : open)
      for (const Half* half : stack)
        if (half->range) ++notes()["unterminated_ranges"];
  }

  TraceRange& add_range(std::uint32_t name, std::uint32_t thread, TimeNs begin_ns, TimeNs end_ns) {
    TraceRange& range = trace_.ranges.emplace_back();
    range.begin_ns = begin_ns;
    range.end_ns = end_ns;
    range.name = name;
    range.key = flags_of(name).key;
    range.thread = thread;
    return range;
  }

  void take_range(const KinetoEvent& event, TimeNs begin_ns, TimeNs end_ns) {
    TraceRange& range = add_range(name_id(event.name), thread_of(event), begin_ns, end_ns);
    if (trace_.recording && !event.region.empty() && event.region.front() == '"') {
      range.recorded = true;
      range.region = trace_.strings.intern(unescape(unquoted(event.region)));
      if (event.scope == "\"process\"") range.kind = RangeKind::kStartEnd;
    }
  }

  bool read_times(const KinetoEvent& event, TimeNs& begin_ns, TimeNs& end_ns) {
    const std::optional<TimeNs> begin = parse_us_as_ns(unquoted(event.ts));
    const std::optional<TimeNs> duration = parse_us_as_ns(unquoted(event.dur));
    if (!begin || !duration) return false;
    begin_ns = *begin;
    return !__builtin_add_overflow(*begin, *duration, &end_ns) && check_times(begin_ns, end_ns, notes());
  }

  /// The id of a name token. Names repeat, so the token as written is looked up first.
  std::uint32_t name_id(std::string_view token) {
    if (token == last_name_) return last_name_id_;
    const std::string_view raw = unquoted(token);
    last_name_.assign(token);
    return last_name_id_ =
               raw.find('\\') == raw.npos ? trace_.strings.intern(raw) : trace_.strings.intern(unescape(raw));
  }

  /// The reading of a name, worked out once.
  struct NameFlags {
    bool known = false;
    bool nccl = false;
    CopyDirection direction = CopyDirection::kUnknown;
    std::uint32_t key = 0;
    TraceLaunch launch;
  };
  const NameFlags& flags_of(std::uint32_t name) {
    if (name >= name_flags_.size()) name_flags_.resize(std::max<std::size_t>(name + 1, name_flags_.size() * 2));
    if (!name_flags_[name].known) {
      const std::string& text = trace_.strings.at(name);
      NameFlags flags;
      flags.known = true;
      flags.nccl = is_nccl_kernel(text);
      flags.direction = copy_direction(text);
      flags.key = trace_.strings.intern(range_key(text));
      classify_launch(flags.launch, text);
      if (name >= name_flags_.size()) name_flags_.resize(name + 1);
      name_flags_[name] = flags;
    }
    return name_flags_[name];
  }

  /// Text of a pid or tid: a number as written, a string without its quotes.
  static std::string word(std::string_view token) {
    if (token.empty()) return "None";
    const std::string_view raw = unquoted(token);
    return token.front() == '"' ? unescape(raw) : std::string(raw);
  }

  /// The process of a thread or device. A pid that is a text and a number, as where SGLang merges the traces of its
  /// ranks (`[TP00-DP00-PP00-EP00] 100`), is of the process that the text names; any other is of the one of the file.
  std::uint32_t process_of(std::string_view pid) {
    std::string_view rank;
    if (pid.size() > 2 && pid.front() == '"') {
      const std::string_view text = unquoted(pid);
      const std::size_t space = text.rfind(' ');
      if (space != text.npos && space > 0 && parse_integer<std::int64_t>(text.substr(space + 1)))
        rank = text.substr(0, space);
    }
    const auto [at, fresh] = processes_.try_emplace(std::string(rank), static_cast<std::uint32_t>(processes_.size()));
    if (fresh && at->second >= trace_.processes.size()) trace_.processes.push_back({"0", {}});
    if (fresh && !rank.empty()) trace_.processes[at->second].name = unescape(rank);
    if (at->second > 0xFFFF) fail("more than 65536 processes: expected the trace of one, or of the ranks of a job");
    return at->second;
  }

  std::uint32_t thread_of(const KinetoEvent& event) {
    if (event.pid == last_pid_ && event.tid == last_tid_) return last_thread_;
    const std::string key = fmt::format("{}\n{}", event.pid, event.tid);
    auto [at, fresh] = threads_.try_emplace(key, static_cast<std::uint32_t>(trace_.threads.size()));
    if (fresh) {
      if (trace_.threads.size() >= 0xFFFFFF) fail("more than 16777215 threads: expected the trace of one process");
      TraceThread thread;
      thread.process = process_of(event.pid);
      thread.label = fmt::format("({}, {})", quoted_word(word(event.pid)), quoted_word(word(event.tid)));
      thread.tid = parse_integer<std::int64_t>(event.tid).value_or(-1);
      trace_.threads.push_back(std::move(thread));
    }
    last_pid_.assign(event.pid);
    last_tid_.assign(event.tid);
    return last_thread_ = at->second;
  }

  std::uint32_t stream_of(const KinetoEvent& event) {
    const std::string_view device = is_scalar(event.device) ? event.device : event.pid;
    const std::string_view stream = is_scalar(event.stream) ? event.stream : event.tid;
    if (event.pid == last_stream_pid_ && device == last_device_ && stream == last_stream_) return last_stream_index_;
    const std::string device_word = word(device);
    const std::string stream_word = word(stream);
    const std::uint32_t process = process_of(event.pid);
    const std::string device_key = fmt::format("{}\n{}", process, device_word);
    const auto [at, fresh] =
        streams_.try_emplace(device_key + '\n' + stream_word, static_cast<std::uint32_t>(trace_.streams.size()));
    if (fresh) {
      const auto [known, new_device] =
          devices_.try_emplace(device_key, static_cast<std::uint32_t>(trace_.devices.size()));
      if (new_device) {
        TraceDevice entry;
        entry.process = process;
        entry.label = device_word;
        entry.id = DeviceId{parse_integer<std::uint32_t>(device_word).value_or(0)};
        trace_.devices.push_back(std::move(entry));
      }
      trace_.streams.push_back(
          {known->second, stream_word, StreamId{parse_integer<std::uint32_t>(stream_word).value_or(0)}});
    }
    last_stream_pid_.assign(event.pid);
    last_device_.assign(device);
    last_stream_.assign(stream);
    return last_stream_index_ = at->second;
  }

  void finish() {
    pair_halves();
    std::sort(trace_.top_level_keys.begin(), trace_.top_level_keys.end());
    std::set<std::string> names;
    for (const auto& [id, facts] : device_facts_)
      if (!facts.name.empty()) names.insert(facts.name);
    trace_.gpu_names.assign(names.begin(), names.end());
    for (TraceDevice& device : trace_.devices) {
      if (const auto known = device_facts_.find(device.label); known != device_facts_.end())
        device.facts = known->second;
    }
    link_launches(trace_);
    if (!trace_.product_of_activity.empty())
      trace_.product_of_activity.resize(trace_.activities.size());
    else
      link_products(trace_);
  }

  static constexpr std::string_view kXProf =
      "is a trace of XProf (JAX, TensorFlow), which does not say what launched a kernel: expected one of "
      "torch.profiler, or nsys profile --trace=cuda,nvtx; mfu run measures the program itself";
  static constexpr std::string_view kProton =
      "is a trace of Triton's Proton, whose kernels have no launch on a thread: expected one of torch.profiler, or "
      "nsys profile --trace=cuda,nvtx";
  static constexpr std::string_view kAutograd =
      "is a trace of torch.autograd.profiler from before PyTorch 1.8, which has no kernels: expected one of "
      "torch.profiler with ProfilerActivity.CUDA";

  /// Half of an event: it begins, or ends.
  struct Half {
    TimeNs at;
    bool begins, range;
    std::uint32_t name, thread;
  };

  Trace trace_;
  std::vector<Half> halves_;
  std::string_view other_profiler_;  ///< the complaint, if the file is of another profiler
  bool cut_off_ = false;
  bool seen_events_ = false;
  ondemand::parser parser_;
  KinetoEventParser event_parser_;

  std::map<std::string, DeviceFacts> device_facts_;  ///< by id, as text
  std::unordered_map<std::string, std::uint32_t> threads_;
  std::unordered_map<std::string, std::uint32_t> streams_;
  std::unordered_map<std::string, std::uint32_t> devices_;
  std::unordered_map<std::string, std::uint32_t> processes_;  ///< by the text before the number of their pids
  std::vector<NameFlags> name_flags_;
  // The last of each, because consecutive events mostly share them.
  std::string last_name_ = "\n", last_pid_ = "\n", last_tid_, last_device_ = "\n", last_stream_, last_stream_pid_;
  std::uint32_t last_name_id_ = 0, last_thread_ = 0, last_stream_index_ = 0;
};

}  // namespace

Result<Trace> read_kineto(ByteSource source, const ReadProgress& progress) {
  return KinetoReader(std::move(source), progress).read();
}

Result<Trace> read_kineto_text(std::string_view text, std::string name) {
  return read_kineto(ByteSource::over(text, std::move(name)));
}

}  // namespace mfu
