// Tables of an SQLite file that Nsight Systems exported, read with care and row by row.
#pragma once

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// A connection to a foreign SQLite file.
class NsysDatabase {
 public:
  explicit NsysDatabase(std::string name) : name_(std::move(name)) {}
  NsysDatabase(const NsysDatabase&) = delete;
  NsysDatabase& operator=(const NsysDatabase&) = delete;
  ~NsysDatabase();

  /// Opens a file that does not change meanwhile.
  Result<void> open_file(const std::string& path);

  /// Opens a copy of `bytes`.
  Result<void> open_bytes(std::span<const char> bytes);

  /// The last SQLite error as one line.
  [[nodiscard]] Error error(std::string_view doing) const;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] sqlite3* handle() const noexcept { return handle_; }

 private:
  Result<void> prepare_connection();

  std::string name_;
  sqlite3* handle_ = nullptr;
};

/// The values of one row while it is read.
class NsysRow {
 public:
  explicit NsysRow(sqlite3_value** values) : values_(values) {}
  [[nodiscard]] std::int64_t integer(int column) const { return sqlite3_value_int64(values_[column]); }
  [[nodiscard]] double real(int column) const { return sqlite3_value_double(values_[column]); }
  [[nodiscard]] bool is_null(int column) const { return sqlite3_value_type(values_[column]) == SQLITE_NULL; }
  [[nodiscard]] bool is_integer(int column) const { return sqlite3_value_type(values_[column]) == SQLITE_INTEGER; }
  /// Bytes of a text value; they may not be UTF-8.
  [[nodiscard]] std::string_view text(int column) const {
    const void* bytes = sqlite3_value_blob(values_[column]);
    if (bytes == nullptr) return {};
    return {static_cast<const char*>(bytes), static_cast<std::size_t>(sqlite3_value_bytes(values_[column]))};
  }

 private:
  sqlite3_value** values_;
};

/// Runs SELECT `columns` `from` and calls `take(NsysRow)` for every row. `table` is for messages.
///
/// An own aggregate function is handed the rows inside SQLite's own loop: a step, a result row and checked access
/// to each column cost more than reading the row does.
template <typename Take>
Result<void> take_rows(const NsysDatabase& database, const std::string& table, const std::string& columns,
                       const std::string& from, Take take) {
  struct Taker {
    Take& take;
    std::uint64_t rows = 0;
    std::exception_ptr thrown;  ///< SQLite's frames must not be unwound
  } taker{take, 0, nullptr};
  constexpr const char* kFunction = "mfu_take";
  const auto step = [](sqlite3_context* context, int, sqlite3_value** values) {
    auto* self = static_cast<Taker*>(sqlite3_user_data(context));
    try {
      self->take(NsysRow(values));
      ++self->rows;
    } catch (...) {
      self->thrown = std::current_exception();
      sqlite3_result_error_nomem(context);
    }
  };
  const auto last = [](sqlite3_context* context) { sqlite3_result_null(context); };
  if (sqlite3_create_function_v2(database.handle(), kFunction, -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, &taker, nullptr,
                                 step, last, nullptr) != SQLITE_OK) {
    return database.error("table " + table);
  }
  const std::string sql = fmt::format("SELECT {}({}) FROM {}", kFunction, columns, from);
  sqlite3_stmt* statement = nullptr;
  const int prepared = sqlite3_prepare_v2(database.handle(), sql.c_str(), -1, &statement, nullptr);
  const int status = prepared == SQLITE_OK ? sqlite3_step(statement) : prepared;
  std::optional<Error> failed;
  if (status != SQLITE_ROW)
    failed = database.error(prepared == SQLITE_OK ? fmt::format("table {}, after row {}", table, taker.rows)
                                                  : "table " + table);
  sqlite3_finalize(statement);
  if (taker.thrown) std::rethrow_exception(taker.thrown);
  if (failed) return *failed;
  return {};
}

/// `name` as SQL writes an identifier.
std::string quoted_identifier(std::string_view name);

/// The tables of a database with their columns.
using NsysSchema = std::map<std::string, std::set<std::string>>;

/// Calls `take(row)` for every row of `table` in the order of the file, with the values of `columns` in this order; a
/// table that is not there has none. A column that the table lacks reads as NULL, unless it is among the first
/// `required`: those are an Error.
template <typename Take>
Result<void> for_each_row(const NsysDatabase& database, const NsysSchema& schema, const std::string& table,
                          const std::vector<std::string>& columns, std::size_t required, Take take) {
  const auto present = schema.find(table);
  if (present == schema.end()) return {};
  std::string list;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) list += ", ";
    if (present->second.contains(columns[i])) {
      list += quoted_identifier(columns[i]);
    } else if (i < required) {
      return Error{fmt::format("{}: table {} has no column {}: expected an Nsight Systems SQLite export",
                               database.name(), table, columns[i])};
    } else {
      list += "NULL";
    }
  }
  return take_rows(database, table, list, quoted_identifier(table) + " NOT INDEXED", std::move(take));
}

}  // namespace mfu
