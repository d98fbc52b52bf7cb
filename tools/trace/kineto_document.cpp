#include "tools/trace/kineto_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/trace/json_text.h"

namespace mfu {

void KinetoDocument::fail_at(std::uint64_t byte, std::string_view what) const {
  fail(fmt::format("byte {}: {}", byte, what));
}

std::string KinetoDocument::excerpt(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += (c >= 0x20 && c < 0x7F) ? c : '?';
  return out;
}

bool KinetoDocument::fill() {
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
      fail_at(position(),
              fmt::format("one value is longer than {} MB: expected the events of a trace", kLargestValueBytes >> 20u));
    }
    buffer_.resize(buffer_.size() + std::max(available(), piece_bytes_));
    room = buffer_.size() - kTailroom - end_;
  }
  const std::size_t want = std::min(room, std::max(piece_bytes_, available()));
  const Result<std::size_t> got = source_.read({buffer_.data() + end_, want});
  if (!got) throw Unusable{got.error()};
  end_ += got.value();
  at_end_ = got.value() < want;
  if (progress_) progress_(source_.stored_bytes_read(), source_.stored_bytes());
  return got.value() > 0;
}

std::optional<char> KinetoDocument::peek_or_end() {
  for (;;) {
    while (begin_ < end_ && is_json_space(buffer_[begin_])) ++begin_;
    if (begin_ < end_) return buffer_[begin_];
    if (!fill()) return std::nullopt;
  }
}

char KinetoDocument::peek() {
  const std::optional<char> next = peek_or_end();
  if (!next) throw BreaksOff{};
  return *next;
}

std::size_t KinetoDocument::value_length() {
  std::int64_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  for (std::size_t i = 0;; ++i) {
    while (begin_ + i == end_)
      if (!fill()) throw BreaksOff{};
    const char c = buffer_[begin_ + i];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
        if (depth == 0) return i + 1;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;  // of what surrounds a number or a word
      if (--depth == 0) return i + 1;
    } else if (depth == 0 && (c == ',' || is_json_space(c))) {
      return i;
    }
  }
}

}  // namespace mfu
