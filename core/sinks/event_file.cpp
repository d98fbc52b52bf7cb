#include "core/sinks/event_file.h"

#include <array>
#include <bit>
#include <cmath>

namespace mfu {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, reflected

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1u) ^ ((crc & 1u) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kTable = make_table();

template <typename Integer>
void put_fixed(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFFu));
}

// Protocol buffers' wire format: a key is field << 3 | type.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7u) out.push_back(static_cast<char>((value & 0x7Fu) | 0x80u));
  out.push_back(static_cast<char>(value));
}
void put_key(std::string& out, std::uint32_t field, Wire wire) {
  put_varint(out, (field << 3u) | static_cast<std::uint32_t>(wire));
}
void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}
void put_double(std::string& out, std::uint32_t field, double value) {
  put_key(out, field, Wire::kFixed64);
  put_fixed(out, std::bit_cast<std::uint64_t>(value));
}

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15u) | (crc << 17u)) + 0xA282EAD8u; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = (crc >> 8u) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFu];
  return crc ^ 0xFFFFFFFFu;
}

std::string framed_record(std::string_view data) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(data.size()));
  put_fixed(out, masked(crc32c(out)));
  out.append(data);
  put_fixed(out, masked(crc32c(data)));
  return out;
}

std::string event_file_header(double wall_time_s) {
  std::string event;
  put_double(event, 1, wall_time_s);
  put_bytes(event, 3, "brain.Event:2");
  return framed_record(event);
}

std::string scalar_event(double wall_time_s, std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    if (!std::isfinite(scalar.value)) continue;
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::kFixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  std::string event;
  put_double(event, 1, wall_time_s);
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return framed_record(event);
}

}  // namespace mfu
