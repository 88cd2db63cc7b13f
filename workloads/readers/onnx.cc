#include "workloads/readers/onnx.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "workloads/readers/onnx_importer.h"
#include "workloads/readers/onnx_scan.h"

namespace orrery {
namespace {

constexpr int kMaxNesting = 64;  // of protobuf messages; a subgraph takes three

}  // namespace

Workload workload_from_onnx(std::string_view bytes, std::string_view file) {
  if (bytes.size() > kMaxOnnxBytes)
    internal::fail_onnx(file, fmt::format("has {} bytes", bytes.size()),
                        fmt::format("expected at most {}", kMaxOnnxBytes));
  internal::scan_onnx(bytes, file);
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(kMaxNesting);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    internal::fail_onnx(file, "is not an ONNX model, or truncated", "expected an ONNX model");
  return internal::OnnxImporter(std::move(model), file).run();
}

}  // namespace orrery
