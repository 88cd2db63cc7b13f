#include "workloads/readers/onnx_scan.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include "base/error.h"

namespace orrery::internal {
namespace {

// Fields of onnx.proto's messages.
constexpr int kModelGraph = 7;
constexpr int kGraphNode = 1;
constexpr int kGraphInitializer = 5;
constexpr int kTensorFloats = 4;
constexpr int kTensorRaw = 9;
constexpr int kTensorDoubles = 10;

enum class Message { model, graph, tensor };

class Scanner {
 public:
  explicit Scanner(std::string_view file) : file_(file) {}

  void scan(std::string_view bytes, Message message) {
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                              static_cast<int>(bytes.size()));
    while (in.CurrentPosition() < static_cast<int>(bytes.size())) {
      const int before = in.CurrentPosition();
      const std::uint32_t tag = in.ReadTagNoLastTag();
      const int field = static_cast<int>(tag >> 3);
      if (field == 0) malformed();
      switch (tag & 7U) {
        case 0: {
          std::uint64_t value = 0;
          if (!in.ReadVarint64(&value)) malformed();
          break;
        }
        case 1:
          if (!in.Skip(8)) malformed();
          break;
        case 2: {
          std::uint32_t length = 0;
          if (!in.ReadVarint32(&length)) malformed();
          const auto at = static_cast<std::size_t>(in.CurrentPosition());
          if (length > bytes.size() - at || !in.Skip(static_cast<int>(length))) malformed();
          if (descend(bytes.substr(at, length), message, field)) continue;
          break;
        }
        case 5:
          if (!in.Skip(4)) malformed();
          break;
        default:
          malformed();
      }
      structure_ += in.CurrentPosition() - before;
      if (structure_ > kMaxOnnxStructureBytes)
        throw UserError(file_, 0, "holds too much beside its weights",
                        fmt::format("expected at most {} bytes", kMaxOnnxStructureBytes));
    }
  }

 private:
  // True where the bytes were counted, or are weights.
  bool descend(std::string_view bytes, Message message, int field) {
    switch (message) {
      case Message::model:
        if (field != kModelGraph) return false;
        scan(bytes, Message::graph);
        return true;
      case Message::graph:
        if (field == kGraphNode && ++nodes_ > kMaxOnnxNodes)
          throw UserError(file_, 0, "has too many nodes", fmt::format("expected at most {}", kMaxOnnxNodes));
        if (field != kGraphInitializer) return false;
        scan(bytes, Message::tensor);
        return true;
      case Message::tensor:
        return field == kTensorFloats || field == kTensorRaw || field == kTensorDoubles;
    }
    return false;
  }

  [[noreturn]] void malformed() const {
    throw UserError(file_, 0, "is not an ONNX model, or truncated", "expected an ONNX model");
  }

  std::string_view file_;
  long structure_ = 0;
  int nodes_ = 0;
};

}  // namespace

void scan_onnx(std::string_view bytes, std::string_view file) {
  if (bytes.empty()) throw UserError(file, 0, "is empty", "expected an ONNX model");
  Scanner(file).scan(bytes, Message::model);
}

}  // namespace orrery::internal
