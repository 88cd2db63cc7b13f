// What a run reads: tokenizers, texts as tokens, pictures, weights, checkpoints.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/hash.h"
#include "base/json.h"
#include "exec/communicators/collectives.h"
#include "exec/data/bpe.h"
#include "exec/data/image_data.h"
#include "exec/data/picture.h"
#include "exec/data/token_file.h"
#include "exec/data/tokenizer.h"
#include "exec/state/checkpoint.h"
#include "exec/state/safetensors.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/target.h"

namespace orrery::fuzz {
namespace {

// Letters of several kinds, marks, blanks, digits, a special token's text, bytes that are no UTF-8.
constexpr std::string_view kText =
    "The caf\u00e9's 1234  \u4e2d\u6587 e\u0301 don't\r\n\t[MASK] <s>!? \xff\xc3 \xf0\x9f\x98\x80 end";

bool tokenizer(std::string_view bytes) {
  return sound_or_refused(
      [&] {
        const exec::Tokenizer read(as_file(bytes, "tokenizer.json"));
        return std::pair(read.largest(), read.encode(kText));
      },
      [](const auto& read) {
        for (const std::int32_t token : read.second)
          possible(token >= 0 && token <= read.first, "no token of these");
      });
}
std::vector<std::string> tokenizer_seeds() {
  return {own_seed("tokenizer_bpe.json"), own_seed("tokenizer_llama2.json"),
          own_seed("tokenizer_wordpiece.json"), own_seed("tokenizer_unigram.json")};
}

// vocab.json, a line of its own with three equals signs, merges.txt.
constexpr std::string_view kBetween = "\n===\n";
bool bpe(std::string_view bytes) {
  const std::size_t cut = std::min(bytes.find(kBetween), bytes.size());
  return sound_or_refused(
      [&] {
        const std::string file = as_file(bytes.substr(0, cut), "vocab.json");
        as_file(bytes.substr(std::min(cut + kBetween.size(), bytes.size())), "merges.txt");
        return exec::BpeVocabulary(std::filesystem::path(file).parent_path().string());
      },
      [](const exec::BpeVocabulary& read) {
        possible(read.decode(read.encode(kText)) == kText, "another text than was encoded");
      });
}
std::vector<std::string> bpe_seeds() {
  std::string vocabulary = "{";
  int number = 0;
  const auto add = [&](const std::string& token) {
    vocabulary += (number == 0 ? "" : ",") + Json(token).dump() + ":" + std::to_string(number);
    ++number;
  };
  for (const std::string& byte : exec::byte_spelling()) add(byte);
  for (const char* token : {"th", "the", "\u0120t", "\u0120the", "en", "end"}) add(token);
  return {vocabulary + "}" + std::string(kBetween) +
              "#version: 0.2\nt h\nth e\n\u0120 t\n\u0120t h\nn d\ne n\nen d\n",
          vocabulary + "}" + std::string(kBetween) + "t h\nth e\ne n\r\nen d\n"};
}

bool picture(std::string_view bytes) {
  return sound_or_refused(
      [&] { return exec::read_picture(as_file(bytes, "picture")); },
      [](const exec::Picture& read) {
        possible(read.height > 0 && read.width > 0 &&
                     read.colours.size() == static_cast<std::size_t>(3 * read.height * read.width),
                 "a picture of another size");
        if (read.colours.size() > 1 << 20) return;  // scaling is not what is asked
        for (const float level : exec::scaled(read, {0, 0, read.height, read.width, false}, 8, 8))
          possible(level >= 0 && level <= 256, "an impossible level");
      });
}
std::vector<std::string> picture_seeds() {
  std::vector<std::string> seeds = {"P6\n# a comment\n2 2\n255\nabcdefghijkl"};
  for (const char* name : {"colours.png", "palette.png", "grey16.png", "interlaced.png", "colours.jpg",
                           "grey.jpg", "progressive.jpg", "four_inks.jpg"})
    seeds.push_back(own_seed(name));
  return seeds;
}

// An index, if it begins as one, or tokens.
bool tokens(std::string_view bytes) {
  const bool index = bytes.starts_with("MMIDIDX");
  const std::string file = as_file(index ? std::string_view("0123456789abcdef") : bytes, "data.bin");
  const std::string index_file = std::filesystem::path(file).parent_path().string() + "/data.idx";
  if (index)
    as_file(bytes, "data.idx");
  else
    std::filesystem::remove(index_file);
  return sound_or_refused([&] { return std::make_unique<exec::TokenFile>(file); },
                          [](const auto& read) {
                            for (std::int64_t i = 0; i < std::min<std::int64_t>(read->tokens(), 1000); ++i)
                              possible(read->token(i) >= -1, "an impossible token");
                          });
}
std::vector<std::string> tokens_seeds() {
  std::string header(1024, '\0');
  const std::array<std::int32_t, 3> said = {20240520, 1, 4};
  std::memcpy(header.data(), said.data(), sizeof(said));
  return {std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\4", 18) + std::string(32, '\0'), header + "abcdefgh",
          "abcdefgh"};
}

bool images(std::string_view bytes) {
  return sound_or_refused(
      [&] {
        const exec::ImageData read(as_file(bytes, "data_batch_1.bin"), ImageShape{3, 32, 32}, 10, 1, 1);
        std::vector<float> image(static_cast<std::size_t>(3) * 32 * 32);
        return std::pair(read.sample(0, 0, image), image);
      },
      [](const auto& read) {
        possible(read.first >= 0 && read.first < 10, "an impossible class");
        for (const float value : read.second) possible(std::isfinite(value), "no number");
      });
}
std::vector<std::string> images_seeds() {
  return {std::string(3073, '\3'), std::string(2 * 3073, '\7')};
}

bool safetensors(std::string_view bytes) {
  return sound_or_refused(
      [&] {
        const exec::SafetensorsModel read(as_file(bytes, "model.safetensors"));
        return std::pair(read.find("wte.weight"), read.find("weight") != nullptr
                                                      ? read.read(*read.find("weight"))
                                                      : std::vector<float>());
      },
      [](const auto&) {});
}
std::string safetensors_file(const std::string& header, std::size_t data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + std::string(data, '\1');
}
std::vector<std::string> safetensors_seeds() {
  return {
      safetensors_file(
          R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
          R"("wte.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]}})",
          28),
      safetensors_file(R"({"weight":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})", 8)};
}

// With its check sum made good, so that the rest is looked at: a damaged one is named and passed over.
bool manifest(std::string_view bytes) {
  std::string text(bytes);
  try {
    Json json = parse_json(bytes, "fuzz");
    if (json.is_object()) {
      json.erase("check_sum");
      json["check_sum"] = fmt::format("{:016x}", fnv_of(json.dump()));
      text = json.dump();
    }
  } catch (const std::exception&) {  // as it is, then
  }
  const std::string folder =
      std::filesystem::path(as_file("", "here")).parent_path().string() + "/checkpoints";
  const std::string step = folder + "/step-00000010";
  std::filesystem::create_directories(step);
  std::ofstream(step + "/manifest.json", std::ios::binary) << text;
  std::ofstream(step + "/rank-00000.bin", std::ios::binary) << std::string(16, '\0');
  const auto control = exec::make_self_communicator();
  return sound_or_refused(
      [&] { return exec::newest_checkpoint(folder, *control); },
      [](const auto& found) { possible(found && found->steps == 10, "another checkpoint"); });
}
std::vector<std::string> manifest_seeds() {
  return {own_seed("manifest.json")};
}

}  // namespace

std::vector<Target> executor() {
  return {
      {"tokenizer", tokenizer, tokenizer_seeds, 1000}, {"bpe", bpe, bpe_seeds, 300},
      {"picture", picture, picture_seeds, 500},        {"tokens", tokens, tokens_seeds, 500},
      {"images", images, images_seeds, 200},           {"safetensors", safetensors, safetensors_seeds, 1000},
      {"manifest", manifest, manifest_seeds, 500}};
}

}  // namespace orrery::fuzz
