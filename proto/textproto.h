// Textproto files: what people write. Errors name file, line and field.
#pragma once

#include <google/protobuf/message.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace orrery {

// Parses `text` into `message`. Throws UserError(file, line, …) on a syntax error, an unknown field or a
// wrong type.
void parse_textproto(std::string_view text, std::string_view file, google::protobuf::Message* message);
// What `text` says on top of what `message` holds: single fields win over those there, repeated ones are
// added.
void merge_textproto(std::string_view text, std::string_view file, google::protobuf::Message* message);
void read_textproto(const std::filesystem::path& path, google::protobuf::Message* message);

// The 1-based line on which the field stands, by its path of field names from the top ("groups.node.devices",
// or "groups[1].node.devices" for the second of a repeated field; without an index the first that matches);
// 0 when it is not written in `text`, which is parsed once more as a message of `type`: for errors, not for
// every field. The elements of a list in brackets stand where the list does, by this account.
int line_of_field(std::string_view text, const google::protobuf::Descriptor& type, std::string_view path);

std::string to_textproto(const google::protobuf::Message& message);

}  // namespace orrery
