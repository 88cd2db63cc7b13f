#include "topologies/simgrid_xml.h"

#include "base/error.h"
namespace orrery {
Cluster cluster_from_simgrid(std::string_view, std::string_view file) {
  throw UserError(file, 0, "SimGrid platform files are not read yet", "expected a .textproto");
}
}  // namespace orrery
