#include "tools/trace/kineto_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/trace/json_text.h"

namespace mfu {

Error KinetoDocument::error_at(std::uint64_t byte, std::string_view what) const {
  return Error{fmt::format("{}: byte {}: {}", source_.name(), byte, what)};
}

std::string KinetoDocument::excerpt(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += (c >= 0x20 && c < 0x7F) ? c : '?';
  return out;
}

Result<bool> KinetoDocument::fill() {
  if (at_end_) return false;
  if (begin_ > kHeadroom) {
    std::memmove(buffer_.data() + kHeadroom, buffer_.data() + begin_, available());
    consumed_ += begin_ - kHeadroom;
    end_ -= begin_ - kHeadroom;
    begin_ = kHeadroom;
  }
  std::size_t room = buffer_.size() - kTailroom - end_;
  if (room < piece_bytes_ / 2) {
    if (available() > kLargestValueBytes) {
      return error_at(position(), fmt::format("one value is longer than {} MB: expected the events of a trace",
                                              kLargestValueBytes >> 20u));
    }
    buffer_.resize(buffer_.size() + std::max(available(), piece_bytes_));
    room = buffer_.size() - kTailroom - end_;
  }
  const std::size_t want = std::min(room, std::max(piece_bytes_, available()));
  const Result<std::size_t> got = source_.read({buffer_.data() + end_, want});
  if (!got) return got.error();
  end_ += got.value();
  at_end_ = got.value() < want;
  if (progress_) progress_(source_.stored_bytes_read(), source_.stored_bytes());
  return got.value() > 0;
}

Result<std::optional<char>> KinetoDocument::peek() {
  for (;;) {
    while (begin_ < end_ && is_json_space(buffer_[begin_])) ++begin_;
    if (begin_ < end_) return std::optional<char>(buffer_[begin_]);
    const Result<bool> more = fill();
    if (!more) return more.error();
    if (!more.value()) return std::optional<char>();
  }
}

Result<std::optional<std::size_t>> KinetoDocument::value_length() {
  std::int64_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  for (std::size_t i = 0;; ++i) {
    while (begin_ + i == end_) {
      const Result<bool> more = fill();
      if (!more) return more.error();
      if (!more.value()) return std::optional<std::size_t>();
    }
    const char c = buffer_[begin_ + i];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
        if (depth == 0) return std::optional<std::size_t>(i + 1);
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return std::optional<std::size_t>(i);  // of what surrounds a number or a word
      if (--depth == 0) return std::optional<std::size_t>(i + 1);
    } else if (depth == 0 && (c == ',' || is_json_space(c))) {
      return std::optional<std::size_t>(i);
    }
  }
}

}  // namespace mfu
