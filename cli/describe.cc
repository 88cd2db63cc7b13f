// orrery describe: a workload's layers, FLOPs and bytes, and what was assumed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostRows = 40;  // of a table of layers: long graphs have hundreds of different ones

struct DescribeOptions {
  std::string workload;
  DType precision = DType::bf16;
  int seq_len = 0;
  Output output;
};

std::string flops(double number) {
  std::string text = human_flops_rate(number);
  return text.substr(0, text.rfind("/s"));
}

std::vector<std::string> row_of(const Part& part, std::string name, std::string count) {
  return {std::move(name), std::move(count), human_count(static_cast<double>(part.parameters)),
          flops(part.forward_flops), human_bytes(part.output_bytes)};
}

std::string head_text(const Description& described) {
  const Workload& workload = described.workload;
  std::string text =
      fmt::format("{}: {} parameters", workload.name, human_count(static_cast<double>(described.parameters)));
  if (described.active_parameters != described.parameters)
    text +=
        fmt::format(" ({} of them active)", human_count(static_cast<double>(described.active_parameters)));
  return text + fmt::format(", {} of weights in {}; a sample takes {} forward and {} to train\n",
                            human_bytes(described.weight_bytes), name_of(described.precision),
                            flops(described.forward_flops), flops(described.model_flops));
}

// Layers that alternate stand in a row for each kind, where the first of it does; neighbours alone are
// together in the JSON.
std::vector<Part> kinds_of_layers(const std::vector<Part>& neighbours) {
  const auto of_one = [](double sum, const Part& part) { return sum / std::max(1, part.count); };
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(a); };
  const auto alike = [&](const Part& a, const Part& b) {
    return a.name == b.name &&
           near(of_one(static_cast<double>(a.parameters), a), of_one(static_cast<double>(b.parameters), b)) &&
           near(of_one(a.forward_flops, a), of_one(b.forward_flops, b)) &&
           near(of_one(a.output_bytes, a), of_one(b.output_bytes, b));
  };
  std::vector<Part> kinds;
  for (const Part& part : neighbours) {
    const auto same =
        std::find_if(kinds.begin(), kinds.end(), [&](const Part& kind) { return alike(kind, part); });
    if (same == kinds.end()) {
      kinds.push_back(part);
      continue;
    }
    same->count += part.count;
    same->parameters += part.parameters;
    same->forward_flops += part.forward_flops;
    same->output_bytes += part.output_bytes;
  }
  return kinds;
}

std::string layers_table(const Description& described) {
  std::vector<std::vector<std::string>> rows;
  const std::vector<Part> kinds = kinds_of_layers(described.layers);
  for (const Part& part : kinds) {
    if (rows.size() == kMostRows) {
      rows.push_back(
          {fmt::format("… and {} more (--json has them)", kinds.size() - kMostRows), "", "", "", ""});
      break;
    }
    rows.push_back(row_of(part, part.name, std::to_string(part.count)));
  }
  return table({"layers", "number", "parameters", "forward", "outputs"}, rows);
}

std::string operators_table(const Description& described) {
  std::vector<std::vector<std::string>> rows;
  for (const Part& part : described.operators)
    rows.push_back(row_of(part, part.name, std::to_string(part.count)));
  return table({"operators", "number", "parameters", "forward", "outputs"}, rows);
}

int run_describe(const DescribeOptions& options) {
  const Description described = describe(load_workload(options.workload), options.seq_len, options.precision);
  options.output.write(to_json(described));
  options.output.print(head_text(described) + "\n" + layers_table(described) + "\n" +
                       operators_table(described));
  if (!described.assumed.empty()) options.output.print("\n");
  for (const std::string& text : described.assumed) options.output.print(text + "\n");
  return 0;
}

}  // namespace

Command describe_command() {
  const auto options = std::make_shared<DescribeOptions>();
  Command command{
      "describe",
      "shows a workload: layers, FLOPs, bytes and what was assumed",
      {text_option({.key = "workload",
                    .help = "a Hugging Face config.json, an .onnx file, a .textproto or a catalog name",
                    .positional = true,
                    .required = true},
                   options->workload),
       count_option({.key = "seq_len",
                     .unit = "TOKENS",
                     .help = "tokens per sequence",
                     .fallback = "the workload's own, at most 8,192"},
                    options->seq_len, {1, 1 << 24, 1024}),
       name_option({.key = "precision",
                    .unit = "fp32|tf32|fp16|bf16|fp8|fp4",
                    .help = "number format in which weights and outputs are counted",
                    .fallback = "bf16"},
                   options->precision, dtype_from_name)},
      [options] { return run_describe(*options); }};
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
