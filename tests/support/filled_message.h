// Messages with every field set, so that a field that a reader or a writer forgets shows.
#pragma once

#include <google/protobuf/message.h>

namespace orrery::testing {

// Sets every scalar field of `message` that is not set yet: true, 1, 0.5 or its own name.
inline void fill(google::protobuf::Message* message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflect = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->is_repeated() || reflect.HasField(*message, field)) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        reflect.SetBool(message, field, true);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflect.SetInt32(message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflect.SetDouble(message, field, 0.5);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflect.SetString(message, field, field->name());
        break;
      default:
        break;
    }
  }
}

}  // namespace orrery::testing
