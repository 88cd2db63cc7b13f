#include "topologies/readers/cluster_file.h"

#include "base/file.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"

namespace orrery {

Cluster cluster_from_text(std::string_view text, std::string_view file) {
  proto::Cluster message;
  parse_textproto(text, file, &message);
  return cluster_from_proto(message, file, text);
}

Cluster read_cluster_file(const std::filesystem::path& file) {
  return cluster_from_text(read_file(file), file.string());
}

void write_cluster_file(const Cluster& cluster, const std::string& file) {
  proto::Cluster message;
  to_proto(cluster, &message);
  const std::string text = to_textproto(message);
  cluster_from_proto(message, file, text);
  write_file_atomically(file, text);
}

}  // namespace orrery
