#include "proto/textproto.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "tests/support/fuzz.h"

using namespace orrery;

namespace {

const std::string kText = R"(# a comment: { name: "no" }
name: "c"
groups {
  count: 2
  node: < device: "a" "b" intra { kind: PCIE mesh_links: [1,
    -2, 3] } >
}
groups: {
  node { name: "x { y" nic { count: 7 } }
}
overrides: [ { node: 1 },
  { node: 2 } ]
devices { peak { dtype: "fp32" } peak {
  dtype: "bf16" } }
)";

int line(std::string_view path) {
  return line_of_field(kText, *proto::Cluster::descriptor(), path);
}

}  // namespace

TEST_CASE("fields are found by path, in any layout") {
  CHECK(line("name") == 2);
  CHECK(line("groups") == 3);
  CHECK(line("groups.count") == 4);
  CHECK(line("groups.node.device") == 5);
  CHECK(line("groups.node.intra.kind") == 5);
  CHECK(line("groups.node.nic.count") == 9);
  CHECK(line("groups.node.nic.latency_s") == 0);
  CHECK(line("fabric") == 0);
}

TEST_CASE("repeated fields are told apart by their index") {
  CHECK(line("groups[0]") == 3);
  CHECK(line("groups[1]") == 8);
  CHECK(line("groups[1].node.nic.count") == 9);
  CHECK(line("groups[0].node.nic.count") == 0);
  CHECK(line("groups[2]") == 0);
  CHECK(line("groups[0].node.intra.mesh_links[1]") == 5);  // of the list
  CHECK(line("groups[0].node.intra.mesh_links[3]") == 0);
  CHECK(line("overrides[0].node") == 11);
  CHECK(line("overrides[1].node") == 12);
  CHECK(line("devices.peak[1].dtype") == 14);
  CHECK(line("") == 0);
  CHECK(line_of_field("", *proto::Cluster::descriptor(), "name") == 0);
}

TEST_CASE("a syntax error, an unknown field and a wrong type name file and line") {
  proto::Cluster message;
  CHECK_THROWS_WITH(parse_textproto("name: \"c\"\ngroups {", "f", &message), Catch::StartsWith("f:2: "));
  CHECK_THROWS_WITH(parse_textproto("name: \"c\"\n\nnodes: 3", "f", &message),
                    Catch::StartsWith("f:3: ") && Catch::Contains("nodes"));
  CHECK_THROWS_WITH(parse_textproto("groups { count: \"two\" }", "f", &message), Catch::StartsWith("f:1: "));
  CHECK_THROWS_WITH(read_textproto("/no/such/file.textproto", &message),
                    Catch::Contains("/no/such/file.textproto"));
}

TEST_CASE("what is printed is read back") {
  proto::Cluster message;
  message.set_name("é \"quoted\"");
  message.add_groups()->set_count(3);
  proto::Cluster again;
  parse_textproto(to_textproto(message), "f", &again);
  CHECK(again.name() == message.name());
  CHECK(again.groups(0).count() == 3);
}

TEST_CASE("a byte order mark in front is none of the text") {
  proto::Cluster message;
  parse_textproto("\xEF\xBB\xBFname: \"a\"", "f", &message);
  CHECK(message.name() == "a");
}

TEST_CASE("looking for a line in damaged text ends, with a line of the text or none") {
  for (int seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    const std::string text = testing::damaged(kText, static_cast<std::uint64_t>(seed));
    const int lines = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    const int line = line_of_field(text, *proto::Cluster::descriptor(), "groups[1].node.nic.count");
    REQUIRE(line >= 0);
    REQUIRE(line <= lines);
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a { ";
  CHECK(line_of_field(deep, *proto::Cluster::descriptor(), "b") == 0);
}
