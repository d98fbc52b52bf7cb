// The table of families as text: every row reads, and one that is wrong does not.
#include "core/families/family_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace mfu {
namespace {

/// Reads `text` as one more file of the table; the message of its row, empty where it reads.
std::string message_of(std::string_view text, std::string_view type = "acme") {
  std::vector<FamilyFile> files = FamilyTable::built_in_files();
  files.push_back({"acme.families", text});
  const FamilyTable table(files, FamilyTable::built_in_keys());
  const Result<const FamilyRow*> row = table.row(type);
  return row ? std::string() : row.error().message;
}

TEST(FamilyTable, EveryRowReads) {
  const FamilyTable& table = FamilyTable::built_in();
  std::set<std::string_view> seen;
  for (std::string_view type : table.types()) {
    EXPECT_TRUE(seen.insert(type).second) << type << " twice";
    const Result<const FamilyRow*> row = table.row(type);
    EXPECT_TRUE(row.ok()) << row.error().message;
  }
  for (std::string_view base : {"generic", "_decoder", "_gpt", "_experts", "_latent", "_bert", "_bart", "_diffusion",
                                "_fla", "_any_size", "_composite", "_eagle3"}) {
    const Result<const FamilyRow*> row = table.row(base);
    EXPECT_TRUE(row.ok()) << row.error().message;
    EXPECT_FALSE(table.has(base)) << base;
  }
  EXPECT_EQ(seen.size(), 414u);
}

/// A misspelt word made a model of chunked attention count 9.8 times its FLOP, in silence.
TEST(FamilyTable, ADefinitionThatNothingUsesIsRefused) {
  EXPECT_EQ(message_of("[acme : llama]\nchnk = attention_chunk_size\n"),
            "acme.families:2: [acme] chnk: nothing uses it; nearest: chunk");
  EXPECT_EQ(message_of("[acme : llama]\nchunk = attention_chunk_size\n"), "");
  EXPECT_EQ(message_of("# odd\n\n[acme : qwen3_moe]\n\nhead_dims = 3\n"),
            "acme.families:5: [acme] head_dims: nothing uses it; nearest: head_dim");
  // A helper is used by another definition of the row.
  EXPECT_EQ(message_of("[acme : llama]\npart = 3 * width\nmlp_width = part\n"), "");
  EXPECT_EQ(message_of("[acme : llama]\npart = 3 * width\n").substr(0, 47),
            "acme.families:2: [acme] part: nothing uses it; ");
  // One that uses itself alone is not used.
  EXPECT_NE(message_of("[acme : llama]\npart = part + 1\n"), "");
}

TEST(FamilyTable, ANameThatNothingHasIsRefused) {
  EXPECT_EQ(message_of("[acme : llama]\nwindow = slidng_window\n"),
            "acme.families:2: [acme] slidng_window: neither a definition nor a key that a config is known to have; "
            "nearest: sliding_window");
  EXPECT_EQ(
      message_of("[acme : llama]\nwindow = 2\n\nmlp_width = 4 * wdth\n"),
      "acme.families:4: [acme] wdth: neither a definition nor a key that a config is known to have; nearest: width");
  for (const char* wrong :
       {"query_bias = atention_bias ~ 0", "window = has(slidng_window)", "window = item(layer_typs, layer)",
        "window = attn_config.slidng ~ 0", "window = .slidng_window",
        "window = of_layer(per_layer_config, layer, hed_dim)", "window = sum(layers, lyer)"}) {
    EXPECT_NE(message_of("[acme : llama]\n" + std::string(wrong) + "\n").find("neither a definition nor"),
              std::string::npos)
        << wrong << ": " << message_of("[acme : llama]\n" + std::string(wrong) + "\n");
  }
}

TEST(FamilyTable, WhatCannotBeReadIsRefused) {
  EXPECT_EQ(message_of("[acme : lama]\n"), "acme.families:1: [acme] lama: no such family; nearest: llama");
  EXPECT_EQ(message_of("[acme : llama]\nwindow = 1\nwindow = 2\n"), "acme.families:3: [acme] window: defined twice");
  EXPECT_EQ(message_of("[acme : llama]\nwindow\n"), "acme.families:2: [acme] window: expected `name = value`");
  EXPECT_EQ(message_of("[acme : llama]\nwindow = (1 + 2\n"), "acme.families:2: [acme] window: expected `)` before ``");
  EXPECT_EQ(message_of("[acme : llama]\nwindow = lenth(layer_types)\n"),
            "acme.families:2: [acme] window: expected a function that there is before `lenth(layer_types)`");
  EXPECT_NE(message_of("[acme : acme]\n"), "");
  EXPECT_NE(message_of("[acme : emca]\n\n[emca : acme]\n"), "");
  for (const std::string& wrong :
       {std::string("1 +"), std::string("1 2"), std::string("1 ? 2"), std::string("item(layer_types)"),
        std::string("equals(norm_type, rms)"), std::string("12x"), std::string("99999999999999999999"), std::string(),
        std::string("\"a"), std::string(1000, '('), std::string(1000, '-') + "1", std::string(1000, '!') + "1"}) {
    EXPECT_NE(message_of("[acme : llama]\nwindow = " + wrong + "\n"), "") << wrong.substr(0, 20);
  }
}

/// Lines that start with white space go on, comments and blank lines stop nothing, several heads share a paragraph.
TEST(FamilyTable, Layout) {
  const std::string text =
      "# first\n[acme, emca : llama]\nmlp_width = 1 +  # one\n\n# between\nchunk = 2\n    + 3\n    * 4\n[next : "
      "acme]\n";
  EXPECT_NE(message_of(text), "");
  const std::string right =
      "# first\n[acme, emca : llama]\nmlp_width = 1  # one\n\n# between\nchunk = 2\n    + 3\n    * 4\n[next : acme]\n";
  for (const char* type : {"acme", "emca", "next"}) EXPECT_EQ(message_of(right, type), "") << type;
}

std::set<std::string> root_words() {
  std::set<std::string> words;
  for (std::string_view root : {"_text", "_tower", "_composite"}) {
    const Result<const FamilyRow*> row = FamilyTable::built_in().row(root);
    EXPECT_TRUE(row.ok()) << row.error().message;
    for (const auto& [name, definition] : (*row)->definitions) words.emplace(name);
  }
  return words;
}

/// Each word is asked for by the reader or used by another word: else it means nothing.
TEST(FamilyTable, EveryWordIsUsed) {
  std::string source;
  for (const char* file : {"family_rows.cpp", "family_vision.cpp", "read_architecture.cpp"}) {
    std::ifstream in(std::string(MFU_TEST_DATA "/../../core/families/") + file);
    source.append(std::istreambuf_iterator<char>(in), {});
  }
  std::set<std::string> used;
  for (std::string_view type : {"_text", "_tower", "_composite"}) {
    for (const auto& [name, definition] : (*FamilyTable::built_in().row(type))->definitions) {
      for_each_name(definition->value, [&](bool, std::string_view text) { used.emplace(text); });
    }
  }
  // Given for rows to use: the reader gives them, or every row may ask.
  for (const std::string& word : root_words()) {
    EXPECT_TRUE(used.contains(word) || source.find("\"" + word + "\"") != std::string::npos || word == "mamba1" ||
                word == "mamba2" || word == "no_mixer" || word == "latent_attention" || word == "delta_net" ||
                word == "linear_mixer")
        << word;
  }
}

/// The README of the room lists every word, and no other.
TEST(FamilyTable, ReadmeListsTheWords) {
  std::ifstream in(MFU_TEST_DATA "/../../core/families/README.md");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::size_t begin = text.find("## Words"), end = text.find("\n## ", begin + 1);
  ASSERT_NE(begin, std::string::npos);
  text = text.substr(begin, end - begin);
  std::set<std::string> listed;
  const std::regex word("`([a-z0-9_]+)`");
  for (std::sregex_iterator it(text.begin(), text.end(), word); it != std::sregex_iterator(); ++it)
    listed.insert((*it)[1]);
  EXPECT_EQ(listed, root_words());
}

/// Every key of the list is read by some row.
TEST(FamilyTable, EveryKeyIsRead) {
  std::set<std::string> read;
  const FamilyTable& table = FamilyTable::built_in();
  std::vector<std::string_view> types = table.types();
  types.emplace_back("generic");
  types.emplace_back("_eagle3");
  for (std::string_view type : types) {
    const FamilyRow& row = **table.row(type);
    for (const auto& [name, definition] : row.definitions) {
      for_each_name(definition->value, [&](bool key, std::string_view text) {
        if (!key && row.word(text) != nullptr) return;
        std::stringstream path{std::string(text)};
        for (std::string part; std::getline(path, part, '.');) read.insert(part);
      });
      if (definition->value.kind == Expression::Kind::kText) read.emplace(definition->value.text);
    }
  }
  std::stringstream keys{std::string(FamilyTable::built_in_keys())};
  for (std::string line; std::getline(keys, line);) {
    std::stringstream words(line);
    for (std::string key; !line.starts_with("#") && words >> key;) EXPECT_TRUE(read.contains(key)) << key;
  }
}

}  // namespace
}  // namespace mfu
