#include "core/families/family_table.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/base/edit_distance.h"
#include "core/base/printable.h"

namespace mfu {

// The texts of this folder that are built into the program.
std::string_view embedded_bases() noexcept;
std::string_view embedded_decoders() noexcept;
std::string_view embedded_encoders() noexcept;
std::string_view embedded_vision() noexcept;
std::string_view embedded_config_keys() noexcept;

namespace {

using Kind = Expression::Kind;

constexpr int kDeepestRow = 8;  // a row that is like a row that is like a row

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

/// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) noexcept {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

bool starts_base(std::string_view type) noexcept { return type.starts_with("_"); }

RowKind kind_of_root(std::string_view type) noexcept {
  return type == "_tower" ? RowKind::kTower : type == "_composite" ? RowKind::kComposite : RowKind::kText;
}

/// `; nearest: a, b`
std::string nearest(std::string_view name, const std::vector<std::string_view>& known) {
  const auto best = std::ranges::min_element(known, {}, [name](std::string_view k) { return edit_distance(name, k); });
  return best == known.end() ? std::string() : "; nearest: " + std::string(*best);
}

}  // namespace

const Definition* FamilyRow::word(std::string_view name) const {
  const auto found = std::lower_bound(definitions.begin(), definitions.end(), name,
                                      [](const auto& one, std::string_view wanted) { return one.first < wanted; });
  return found == definitions.end() || found->first != name ? nullptr : found->second;
}

const Definition* FamilyRow::find(std::string_view name) const {
  const Definition* found = word(name);
  return found == nullptr || found->value.kind == Kind::kUndefined ? nullptr : found;
}

std::string_view FamilyRow::text(std::string_view name) const {
  const Definition* found = find(name);
  return found != nullptr && found->value.kind == Kind::kText ? found->value.text : std::string_view();
}

std::vector<std::string_view> FamilyRow::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [name, definition] : definitions) {
    for_each_name(definition->value, [&](bool is_key, std::string_view text) {
      if (is_key || word(text) == nullptr) keys.push_back(text);
    });
  }
  return keys;
}

FamilyTable::FamilyTable(std::vector<FamilyFile> files, std::string_view keys) : files_(std::move(files)) {
  for (const FamilyFile& file : files_) index(file);
  if (keys.starts_with("#")) next_line(keys);
  keys_ = words_of(keys);
  if (!std::is_sorted(keys_.begin(), keys_.end())) std::sort(keys_.begin(), keys_.end());
}

const FamilyTable& FamilyTable::built_in() {
  static const FamilyTable& table = *new FamilyTable(built_in_files(), built_in_keys());
  return table;
}

std::vector<FamilyFile> FamilyTable::built_in_files() {
  return {{"bases.families", embedded_bases()},
          {"decoders.families", embedded_decoders()},
          {"encoders.families", embedded_encoders()},
          {"vision.families", embedded_vision()}};
}

std::string_view FamilyTable::built_in_keys() noexcept { return embedded_config_keys(); }

/// Finds the headings. `[a, b : like]` is two rows that say the same.
void FamilyTable::index(const FamilyFile& file) {
  const std::string_view text = file.text;
  const auto next_heading = [text](std::size_t from) {
    std::size_t found = text.find('[', from);
    while (found != std::string_view::npos && found > 0 && text[found - 1] != '\n') found = text.find('[', found + 1);
    return found;
  };
  for (std::size_t at = next_heading(0), next = 0; at != std::string_view::npos; at = next) {
    next = next_heading(at + 1);
    std::string_view heading = text.substr(at + 1, text.find('\n', at) - at - 1);
    const std::size_t begin = std::min(at + 1 + heading.size(), text.size());
    heading = heading.substr(0, heading.find(']'));
    const std::size_t colon = heading.find(" : ");
    const std::string_view like = colon == std::string_view::npos ? std::string_view() : heading.substr(colon + 3);
    std::string_view names = heading.substr(0, colon);
    while (!names.empty()) {
      const std::size_t comma = names.find(',');
      paragraphs_.push_back(
          {&file, trimmed(names.substr(0, comma)), trimmed(like), begin, std::min(next, text.size()), {}, {}, {}});
      names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
    }
  }
}

std::string FamilyTable::place(const Paragraph& p, std::size_t offset) {
  const std::string_view before = p.file->text.substr(0, offset);
  return std::string(p.file->name) + ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ": [" +
         std::string(p.type) + "] ";
}

const FamilyTable::Paragraph* FamilyTable::find(std::string_view type) const noexcept {
  const auto found =
      std::find_if(paragraphs_.begin(), paragraphs_.end(), [type](const Paragraph& one) { return one.type == type; });
  return found == paragraphs_.end() ? nullptr : &*found;
}

bool FamilyTable::has(std::string_view type) const noexcept {
  return !starts_base(type) && type != "generic" && find(type) != nullptr;
}

std::vector<std::string_view> FamilyTable::types() const {
  std::vector<std::string_view> all;
  for (const Paragraph& one : paragraphs_)
    if (!starts_base(one.type) && one.type != "generic") all.push_back(one.type);
  return all;
}

Result<const FamilyRow*> FamilyTable::row(std::string_view type) const {
  const std::lock_guard lock(mutex_);
  const Paragraph* found = load(type, 0);
  if (found == nullptr) return Error{"[" + std::string(type) + "]: the table has no such family"};
  if (found->mistake) return *found->mistake;
  return &*found->row;
}

const FamilyTable::Paragraph* FamilyTable::load(std::string_view type, int depth) const {
  const Paragraph* found = find(type);
  if (found != nullptr && !found->row && !found->mistake) {
    found->mistake = read(*found, depth);
    if (found->mistake) found->row.reset();
  }
  return found;
}

std::optional<Error> FamilyTable::read(const Paragraph& p, int depth) const {
  FamilyRow row{p.type, p.like, kind_of_root(p.type), {}};
  if (!p.like.empty()) {
    const Paragraph* like = depth < kDeepestRow ? load(p.like, depth + 1) : nullptr;
    if (like == nullptr) {
      std::vector<std::string_view> known;
      for (const Paragraph& one : paragraphs_) known.push_back(one.type);
      return Error{place(p, p.begin - 1) + std::string(p.like) + ": no such family" + nearest(p.like, known)};
    }
    if (like->mistake) return like->mistake;
    row.kind = like->row->kind;
    row.definitions = like->row->definitions;
  }
  if (auto mistake = read_lines(p)) return mistake;
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::vector<std::pair<std::string_view, const Definition*>> own;
  for (const Definition& one : p.own) own.emplace_back(one.name, &one);
  std::sort(own.begin(), own.end(), by_name);
  std::vector<std::pair<std::string_view, const Definition*>> all;
  all.reserve(own.size() + row.definitions.size());
  // Of two with one name the row's own comes first, and stays.
  std::merge(own.begin(), own.end(), row.definitions.begin(), row.definitions.end(), std::back_inserter(all), by_name);
  all.erase(std::unique(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
            all.end());
  row.definitions = std::move(all);
  p.row = std::move(row);
  return check(p);
}

/// Reads the definitions. A line that starts with white space goes on with the one before.
std::optional<Error> FamilyTable::read_lines(const Paragraph& p) const {
  const std::string_view text = p.file->text;
  std::string_view rest = text.substr(p.begin, p.end - p.begin);
  while (!rest.empty()) {
    const auto offset = static_cast<std::size_t>(rest.data() - text.data());
    std::string_view one = next_line(rest);
    one = one.substr(0, one.find('#'));
    if (trimmed(one).empty()) continue;
    while (!rest.empty() && is_blank(rest.front()) && !trimmed(rest.substr(0, rest.find('\n'))).empty()) {
      const std::string_view more = next_line(rest);
      one = text.substr(offset, static_cast<std::size_t>(more.data() + more.size() - text.data()) - offset);
    }
    const std::size_t equals = one.find('=');
    const std::string_view name = trimmed(one.substr(0, equals));
    const auto mistake = [&](const std::string& what) {
      return Error{place(p, offset) + std::string(name) + ": " + what};
    };
    if (equals == std::string_view::npos || is_blank(one.front())) return mistake("expected `name = value`");
    const auto same = [name](const Definition& other) { return other.name == name; };
    if (std::any_of(p.own.begin(), p.own.end(), same)) return mistake("defined twice");
    Result<Expression> value = parse_expression(trimmed(one.substr(equals + 1)));
    if (!value) return mistake(value.error().message);
    p.own.push_back({name, *std::move(value), offset});
  }
  return std::nullopt;
}

/// A word of the rows that `p` builds on: the reader asks for it, or the base uses it.
bool FamilyTable::is_word(const Paragraph& p, std::string_view name) const {
  if (starts_base(p.type)) return true;
  for (const Paragraph* one = &p; one != nullptr; one = one->like.empty() ? nullptr : find(one->like)) {
    if (!starts_base(one->type)) continue;
    for (const Definition& own : one->own)
      if (own.name == name) return true;
  }
  return false;
}

bool FamilyTable::is_key(std::string_view path) const {
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    if (key != "layer" && !std::binary_search(keys_.begin(), keys_.end(), key)) return false;
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return true;
}

/// Every name that the row's own definitions use must be there, and every name that they define must be used.
std::optional<Error> FamilyTable::check(const Paragraph& p) const {
  const FamilyRow& row = *p.row;
  std::optional<Error> mistake;
  const auto note = [&](const Definition& at, std::string_view name, const char* what, bool words, bool keys) {
    if (mistake) return;
    std::vector<std::string_view> known;
    for (const auto& [word, definition] : row.definitions)
      if (words && word != name) known.push_back(word);
    if (keys) known.insert(known.end(), keys_.begin(), keys_.end());
    mistake = Error{place(p, at.offset) + std::string(name) + ": " + what + nearest(name, std::move(known))};
  };
  for (const Definition& own : p.own) {
    for_each_name(own.value, [&](bool key, std::string_view name) {
      if ((!key && row.word(name) != nullptr) || is_key(name)) return;
      note(own, name, "neither a definition nor a key that a config is known to have", !key, true);
    });
    if (is_word(p, own.name)) continue;
    bool used = false;
    for (const auto& [name, definition] : row.definitions) {
      if (definition == &own) continue;
      for_each_name(definition->value,
                    [&](bool key, std::string_view text) { used = used || (!key && text == own.name); });
    }
    if (!used) note(own, own.name, "nothing uses it", true, false);
  }
  return mistake;
}

}  // namespace mfu
