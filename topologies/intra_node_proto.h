// IntraNode <-> proto::IntraNode, with every check: a part of cluster_from_proto() and to_proto().
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string_view>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::proto {
class IntraNode;
class NodeType;
}  // namespace orrery::proto

namespace orrery {

class FieldCheck;

// Dimensions of a torus for `places` things; `of_what`: their name, in the plural.
std::vector<int> read_dimensions(const google::protobuf::RepeatedField<int>& sizes, int places,
                                 std::string_view of_what, const FieldCheck& check);
IntraNode read_intra(const proto::NodeType& message, const FieldCheck& node);
void write_intra(const IntraNode& intra, proto::IntraNode* to);

}  // namespace orrery
