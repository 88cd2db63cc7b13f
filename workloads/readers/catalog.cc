#include "workloads/readers/catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/suggest.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/networks/builtin_graphs.h"
#include "workloads/readers/huggingface.h"
#include "workloads/readers/onnx.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_workloads();

namespace {

Workload workload_from_textproto(std::string_view text, std::string_view file) {
  proto::Workload message;
  parse_textproto(text, file, &message);
  return workload_from_proto(message, file, text);
}

// The comment on top of a catalog file, on one line.
std::string description_of(std::string_view text) {
  std::string description;
  while (!text.empty() && text.front() == '#') {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(1, end - 1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    if (!description.empty()) description += ' ';
    description += line;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return description;
}

const EmbeddedFile* find_entry(std::string_view name) {
  for (const EmbeddedFile& file : embedded_workloads())
    if (file.name == name) return &file;
  return nullptr;
}

enum class Format : std::uint8_t { onnx, huggingface, textproto };

// What a file's name says that it holds; a name may have a point and be no file's: "qwen2.5-72b".
std::optional<Format> format_of(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".onnx") return Format::onnx;
  if (extension == ".json") return Format::huggingface;
  if (extension == ".textproto" || extension == ".pbtxt" || extension == ".txtpb") return Format::textproto;
  return {};
}

Workload load_file(const std::filesystem::path& path) {
  const std::optional<Format> format = format_of(path);
  const std::string file = path.string();
  if (format == Format::onnx) return workload_from_onnx(read_file(path, kMaxOnnxBytes), file);
  const std::string text = read_file(path);
  if (format == Format::huggingface) return workload_from_huggingface(text, file);
  if (format == Format::textproto) return workload_from_textproto(text, file);
  // By content: ONNX is binary, JSON begins with a brace.
  if (text.find('\0') != std::string::npos) return workload_from_onnx(text, file);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return workload_from_huggingface(text, file);
  return workload_from_textproto(text, file);
}

}  // namespace

std::vector<WorkloadEntry> catalog_workloads() {
  std::vector<WorkloadEntry> entries;
  for (const EmbeddedFile& file : embedded_workloads())
    entries.push_back({std::string(file.name), description_of(file.content)});
  for (const internal::BuiltinGraph& graph : internal::builtin_graphs())
    entries.push_back({std::string(graph.name), std::string(graph.description)});
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

Workload load_workload(const std::string& file_or_name) {
  if (const EmbeddedFile* entry = find_entry(file_or_name))
    return workload_from_textproto(entry->content, fmt::format("catalog/{}.textproto", entry->name));
  for (const internal::BuiltinGraph& graph : internal::builtin_graphs())
    if (graph.name == file_or_name) return graph.build();
  std::filesystem::path path(file_or_name);
  std::error_code error;
  // A folder as Hugging Face has it.
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  const bool looks_like_file = format_of(path) || file_or_name.find('/') != std::string::npos;
  if (looks_like_file || std::filesystem::exists(path, error)) return load_file(path);
  std::vector<std::string> names;
  for (const WorkloadEntry& entry : catalog_workloads()) names.push_back(entry.name);
  const std::string near = suggestion(file_or_name, names);
  if (near.starts_with("did you mean"))
    throw UserError(fmt::format("unknown workload '{}'", file_or_name), near);
  throw UserError(
      fmt::format("unknown workload '{}'", file_or_name),
      fmt::format("expected a config.json, an .onnx, a .textproto, or one of {}", fmt::join(names, " ")));
}

}  // namespace orrery
