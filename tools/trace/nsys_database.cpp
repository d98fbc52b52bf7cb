#include "tools/trace/nsys_database.h"

#include <cstring>

namespace mfu {

NsysDatabase::~NsysDatabase() { sqlite3_close(handle_); }

Result<void> NsysDatabase::open_file(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    // ? # and % mean something in a URI.
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      uri += c;
    }
  }
  uri += "?mode=ro&immutable=1";
  if (sqlite3_open_v2(uri.c_str(), &handle_, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    return error("cannot be opened");
  }
  return prepare_connection();
}

Result<void> NsysDatabase::open_bytes(std::span<const char> bytes) {
  if (sqlite3_open_v2(":memory:", &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK) {
    return error("cannot be opened");
  }
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
  if (copy == nullptr) return Error{name_ + ": no memory to hold it"};
  std::memcpy(copy, bytes.data(), bytes.size());
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (sqlite3_deserialize(handle_, "main", copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
    return error("cannot be opened");
  }
  return prepare_connection();
}

Error NsysDatabase::error(std::string_view doing) const {
  return Error{fmt::format("{}: {}: {}: expected an Nsight Systems SQLite export", name_, doing,
                           handle_ == nullptr ? "no memory" : sqlite3_errmsg(handle_))};
}

Result<void> NsysDatabase::prepare_connection() {
  // The file is foreign: none of its functions or views is trusted, no value may be huge.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, 256 << 20);
  sqlite3_exec(handle_, "PRAGMA mmap_size=1073741824; PRAGMA temp_store=MEMORY", nullptr, nullptr, nullptr);
  return {};
}

std::string quoted_identifier(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace mfu
