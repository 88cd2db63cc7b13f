#include "topologies/readers/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "base/suggest.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/discover.h"
#include "topologies/readers/simgrid_xml.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_clusters();

namespace {

constexpr std::string_view kAlias = "dgx-v100";
constexpr std::string_view kAliasOf = "dgx-v100-32g";

const EmbeddedFile* find(const std::vector<EmbeddedFile>& files, std::string_view name) {
  const auto at =
      std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& f) { return f.name == name; });
  return at == files.end() ? nullptr : &*at;
}

proto::Cluster parsed(const EmbeddedFile& file) {
  proto::Cluster message;
  parse_textproto(file.content, file.name, &message);
  return message;
}

std::vector<std::string> names_of(const std::vector<CatalogEntry>& entries) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : entries) names.push_back(entry.name);
  return names;
}

Cluster this_machines_gpus() {
  if (auto gpus = discover_gpus()) return *std::move(gpus);
  throw UserError("this machine has no NVIDIA GPU that its driver's library (NVML) shows", "expected one");
}

}  // namespace

std::vector<CatalogEntry> catalog_clusters() {
  std::vector<CatalogEntry> result;
  for (const EmbeddedFile& file : embedded_clusters())
    result.push_back({.name = std::string(file.name),
                      .description = parsed(file).description(),
                      .source = parsed(file).source()});
  result.push_back({.name = std::string(kAlias),
                    .description = fmt::format("the same as {}", kAliasOf),
                    .source = parsed(*find(embedded_clusters(), kAliasOf)).source()});
  result.push_back({.name = "localhost",
                    .description = "this machine: its processor cores, discovered or calibrated",
                    .source = "what the system says of the processor; measured by `orrery calibrate`"});
  result.push_back({.name = "localhost-gpu",
                    .description = "this machine: its NVIDIA GPUs, discovered",
                    .source = "what the driver's library (NVML) says; the devices' profiles"});
  std::sort(result.begin(), result.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) { return a.name < b.name; });
  return result;
}

Cluster load_cluster(const std::string& file_or_name) {
  if (file_or_name == "localhost") return discover_localhost();
  if (file_or_name == "localhost-gpu") return this_machines_gpus();
  const std::string_view name = file_or_name == kAlias ? kAliasOf : std::string_view(file_or_name);
  if (const EmbeddedFile* file = find(embedded_clusters(), name))
    return cluster_from_text(file->content, file->name);

  const std::filesystem::path path = file_or_name;
  if (path.extension() == ".textproto") return read_cluster_file(path);
  if (path.extension() == ".xml") return cluster_from_simgrid(read_file(path), file_or_name);
  std::error_code code;
  if (path.has_parent_path() || std::filesystem::exists(path, code))
    throw UserError(file_or_name, 0, "is no cluster file",
                    "expected a .textproto or a SimGrid platform .xml");
  throw UserError(fmt::format("unknown cluster '{}'", file_or_name),
                  suggestion(file_or_name, names_of(catalog_clusters())));
}

}  // namespace orrery
