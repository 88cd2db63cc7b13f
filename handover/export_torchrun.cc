// PyTorch alone: a program that a person can read, started by torchrun. ZeRO-0 is DDP, ZeRO-1 DDP with
// ZeroRedundancyOptimizer, ZeRO-2 and 3 FSDP2 over a device mesh (PyTorch 2.6 and later; DDP as
// oldest_pytorch says).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "handover/export_common.h"
#include "handover/torchrun_script.h"

namespace orrery::planner {
namespace {

void check_forms(const Plan& plan) {
  const Choices& c = plan.choices;
  refuse_forms({{"tensor", c.tp}, {"pipeline", c.pp}, {"context", c.cp}, {"expert", c.ep}}, "torchrun",
               "expected data parallelism and sharding alone; torchtitan and megatron take the others");
}

bool fsdp(const Choices& c) {
  return c.zero >= 2;
}

std::string head(const Plan& plan) {
  const Choices& c = plan.choices;
  std::string text = fmt::format(
      "#!/usr/bin/env python3\n"
      "\"\"\"Trains {} as planned for {}: written by orrery export. launch.sh starts it.\"\"\"\n"
      "import argparse\nimport contextlib\nimport json\nimport math\nimport os\nimport struct\nimport "
      "time\n\n"
      "import torch\nimport torch.distributed as dist\nfrom torch import nn\nfrom torch.nn import functional "
      "as "
      "F\n",
      plan.job->workload.name, plan.job->cluster.name);
  if (fsdp(c))
    text +=
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n";
  else
    text += "from torch.nn.parallel import DistributedDataParallel\n";
  if (c.zero == 1) text += "from torch.distributed.optim import ZeroRedundancyOptimizer\n";
  if (c.grad_compression == Compression::fp16 && !fsdp(c))
    text += "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n";
  if (c.recompute != Recompute::none) text += "from torch.utils.checkpoint import checkpoint\n";
  return text;
}

std::string plan_constants(const Plan& plan) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::string text = fmt::format(
      "\nSEQ_LEN, GLOBAL_BATCH, MICRO_BATCH = {}, {}, {}\nREPLICAS = {}  # each of micro-batches: {}\n",
      t.seq_len, t.global_batch, c.micro_batch, c.dp, equal_micro_batches(plan, "torchrun"));
  if (fsdp(c)) {
    const int shards = c.shard_group > 0 ? c.shard_group : c.dp;
    text += fmt::format("MESH = ({}, {})  # copies of the states, ranks that share each\n", c.dp / shards,
                        shards);
  }
  return text + "\n";
}

// Of what the ranks train on, the same on every machine for the same seed.
std::string data_functions(const Plan& plan) {
  std::string text = R"(

def tokens_of(file, width):
    """Tokens of a file: whole numbers of `width` bytes each; a text is its bytes."""
    if file is None:
        return torch.randint(VOCAB, (1 << 20,), generator=torch.Generator().manual_seed(1))
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[width]
    tokens = torch.from_file(file, size=os.path.getsize(file) // width, dtype=kind)
    return tokens.long() & 0xFFFF if width == 2 else tokens.long()


def begins_of(step, tokens, listed):
    """Where the samples of a step begin: as `orrery run --print-batches` listed them, or drawn."""
    if listed:
        return listed[step % len(listed)]["samples_begin"]
    drawn = torch.Generator().manual_seed(step)
    return torch.randint(len(tokens) - SEQ_LEN, (GLOBAL_BATCH,), generator=drawn).tolist()

)";
  if (plan.job->workload.transformer->mlm_head)
    text += R"(
def batch_of(tokens, begins, device):
    """15 of 100 tokens are hidden behind the last of the vocabulary and asked for."""
    inputs = torch.stack([tokens[begin:begin + SEQ_LEN] for begin in begins])
    hidden = torch.rand(inputs.shape, generator=torch.Generator().manual_seed(begins[0])) < 0.15
    labels = inputs.masked_fill(~hidden, -1)
    return inputs.masked_fill(hidden, VOCAB - 1).to(device), labels.to(device)
)";
  else
    text += R"(
def batch_of(tokens, begins, device):
    rows = torch.stack([tokens[begin:begin + SEQ_LEN + 1] for begin in begins]).to(device)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
)";
  return text + R"(

def read_safetensors(file):
    kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    with open(file, "rb") as raw:
        about = json.loads(raw.read(struct.unpack("<Q", raw.read(8))[0]))
        start = raw.tell()
        for name, tensor in about.items():
            if name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            raw.seek(start + begin)
            values = torch.frombuffer(bytearray(raw.read(end - begin)), dtype=kinds[tensor["dtype"]])
            yield name, values.reshape(tensor["shape"]).float()


def state_of(files):
    """A checkpoint's tensors by our names."""
    theirs = {name: tensor for file in files for name, tensor in read_safetensors(file)}
    ours = {}
    for name, other, turned in NAMES:
        for layer in range(LAYERS if "{}" in name else 1):
            tensor = theirs[other.format(layer)]
            ours[name.format(layer)] = tensor.t().contiguous() if turned else tensor
    return ours


def initialise(model):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, Norm):
            nn.init.ones_(module.weight)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
)";
}

std::string optimizer_line(const Plan& plan) {
  const Training& t = plan.job->training;
  const char* name = t.optimizer == Optimizer::adam    ? "Adam"
                     : t.optimizer == Optimizer::adamw ? "AdamW"
                                                       : "SGD";
  std::string more = t.optimizer == Optimizer::momentum ? ", momentum=0.9" : "";
  if (t.optimizer == Optimizer::adamw) more += ", weight_decay=0.01";
  if (plan.choices.zero == 1)
    return fmt::format(
        "    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.{}, lr=arguments.lr{})\n",
        name, more);
  return fmt::format("    optimizer = torch.optim.{}(model.parameters(), lr=arguments.lr{})\n", name, more);
}

std::string compile_lines(const Plan& plan) {
  if (!plan.job->runtime.fused_elementwise) return "";
  return "    if device.type == \"cuda\":\n"
         "        for layer in model.layers:\n"
         "            layer.compile()\n";
}

// The oldest that has what the program calls: FSDP2; scaled_dot_product_attention of grouped queries;
// Module.compile; scaled_dot_product_attention.
std::string oldest_pytorch(const Plan& plan) {
  if (fsdp(plan.choices)) return "2.6";
  const Transformer& m = *plan.job->workload.transformer;
  const bool fused = plan.job->training.fused_attention;
  return fused && m.kv_heads != m.heads        ? "2.6"
         : plan.job->runtime.fused_elementwise ? "2.2"
         : fused                               ? "2.0"
                                               : "1.13";
}

std::string ddp_lines(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  std::string text =
      "    torch.manual_seed(1)\n"
      "    model = Model()\n"
      "    initialise(model)\n"
      "    if arguments.init:\n"
      "        model.load_state_dict(state_of(arguments.init))\n"
      "    model.to(device)\n";
  text += compile_lines(plan);
  text += "    count = sum(p.numel() for p in model.parameters())\n";
  const double bucket = plan.bucket_bytes();
  std::string buckets;
  if (!c.overlap_grad_reduce) {
    buckets = ", bucket_cap_mb=1 << 20";
    notes->emplace_back(
        "one bucket for all gradients stands for a reduction behind the backward pass; DDP reduces a first "
        "one "
        "of 1 MiB earlier");
  } else if (bucket > 0) {
    buckets = fmt::format(", bucket_cap_mb={:.6g}", bucket / (1 << 20));
  }
  text += fmt::format(
      "    model = DistributedDataParallel(model, device_ids=[device.index] if device.type == \"cuda\" else "
      "None,\n                                    gradient_as_bucket_view=True{})\n",
      buckets);
  if (c.grad_compression == Compression::fp16)
    text += "    model.register_comm_hook(None, fp16_compress_hook)\n";
  return text;
}

std::string fsdp_lines(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  const DType precision = plan.job->training.precision;
  const std::string_view reduce = c.grad_compression == Compression::fp16 ? "torch.float16"
                                  : plan.job->runtime.fp32_gradients      ? "torch.float32"
                                                                          : torch_type(precision);
  if (plan.choices.bucket_bytes > 0)
    notes->push_back(fmt::format("FSDP reduces layer by layer; the plan's buckets are of {:.0f} bytes",
                                 plan.choices.bucket_bytes));
  if (!c.overlap_grad_reduce)
    notes->emplace_back("FSDP overlaps the reduction of gradients; the plan does not");
  std::string text = fmt::format(
      "    torch.manual_seed(1)\n"
      "    with torch.device(\"meta\"):\n"
      "        model = Model()\n"
      "    count = sum(p.numel() for p in model.parameters())\n"
      "{}"
      "    mesh = init_device_mesh(device.type, MESH, mesh_dim_names=(\"replicate\", \"shard\"))\n"
      "    sharding = {{\"mesh\": mesh if MESH[0] > 1 else mesh[\"shard\"], \"reshard_after_forward\": {},\n"
      "                \"mp_policy\": MixedPrecisionPolicy(param_dtype={}, reduce_dtype={})}}\n",
      compile_lines(plan), c.zero == 3 ? "True" : "False", torch_type(precision), reduce);
  return text +
         "    for layer in model.layers:\n"
         "        fully_shard(layer, **sharding)\n"
         "    fully_shard(model, **sharding)\n"
         "    # The next layer's weights are gathered while this one computes.\n"
         "    for here, there in zip(model.layers, model.layers[1:]):\n"
         "        here.set_modules_to_forward_prefetch([there])\n"
         "        there.set_modules_to_backward_prefetch([here])\n"
         "    model.to_empty(device=device)\n"
         "    initialise(model)\n"
         "    if arguments.init:\n"
         "        set_model_state_dict(model, state_of(arguments.init), "
         "options=StateDictOptions(full_state_dict=True))\n";
}

std::string micro_batch_lines(const Plan& plan) {
  const Choices& c = plan.choices;
  const DType precision = plan.job->training.precision;
  const bool narrow = precision != DType::fp32 && precision != DType::tf32;
  const std::string of_losses =
      precision == DType::fp16 ? "scaler.scale(loss / micro_batches)" : "(loss / micro_batches)";
  std::string text;
  // Gradients are reduced behind the last micro-batch of a step alone.
  if (fsdp(c)) {
    text += c.zero == 3 ? "" : "            model.set_requires_gradient_sync(number == micro_batches - 1)\n";
    text +=
        "            loss = model(inputs, labels)\n"
        "            " +
        of_losses + ".backward()\n";
    return text;
  }
  text +=
      "            last = number == micro_batches - 1\n"
      "            with contextlib.nullcontext() if last else model.no_sync():\n";
  text += narrow ? fmt::format(
                       "                with torch.autocast(device.type, dtype={}):\n"
                       "                    loss = model(inputs, labels)\n",
                       torch_type(precision))
                 : "                loss = model(inputs, labels)\n";
  return text + "                " + of_losses + ".backward()\n";
}

std::string update_lines(const Plan& plan) {
  const bool scaled = plan.job->training.precision == DType::fp16;
  std::string text;
  if (plan.job->runtime.clip_gradients) {
    if (scaled) text += "        scaler.unscale_(optimizer)\n";
    text += "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n";
  }
  text += scaled ? "        scaler.step(optimizer)\n        scaler.update()\n" : "        optimizer.step()\n";
  return text + "        optimizer.zero_grad()\n";
}

std::string main_function(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  const double rate = t.learning_rate > 0                  ? t.learning_rate
                      : t.optimizer == Optimizer::sgd      ? 0.1
                      : t.optimizer == Optimizer::momentum ? 0.02
                                                           : 3e-4;
  std::string text = fmt::format(
      "\n\ndef main():\n"
      "    parser = argparse.ArgumentParser(description=__doc__)\n"
      "    parser.add_argument(\"--steps\", type=int, default=20)\n"
      "    parser.add_argument(\"--lr\", type=float, default={})\n"
      "    parser.add_argument(\"--data\", help=\"tokens, or a text whose bytes are tokens (default: random "
      "tokens)\")\n"
      "    parser.add_argument(\"--token-bytes\", type=int, default=1, choices=[1, 2, 4])\n"
      "    parser.add_argument(\"--batches\", help=\"what orrery run PLAN --print-batches wrote: the same "
      "samples\")\n"
      "    parser.add_argument(\"--init\", nargs=\"+\", help=\"safetensors to start from (default: random "
      "weights)\")\n"
      "    arguments = parser.parse_args()\n\n",
      rate);
  text +=
      "    dist.init_process_group(\"nccl\" if torch.cuda.is_available() else \"gloo\")\n"
      "    rank, world = dist.get_rank(), dist.get_world_size()\n"
      "    if world != REPLICAS:\n"
      "        raise SystemExit(f\"train.py: {world} ranks (expected the plan's {REPLICAS})\")\n"
      "    device = torch.device(\"cuda\", int(os.environ[\"LOCAL_RANK\"])) if torch.cuda.is_available() "
      "else "
      "torch.device(\"cpu\")\n"
      "    if device.type == \"cuda\":\n"
      "        torch.cuda.set_device(device)\n";
  if (t.precision == DType::tf32) text += "    torch.backends.cuda.matmul.allow_tf32 = True\n";
  text += fsdp(c) ? fsdp_lines(plan, notes) : ddp_lines(plan, notes);
  text += optimizer_line(plan);
  if (t.precision == DType::fp16)
    text += "    scaler = torch.cuda.amp.GradScaler(enabled=device.type == \"cuda\")\n";
  const std::string copies = fsdp(c) ? "{MESH[0]}, dp_shard={MESH[1]}" : "{REPLICAS}, dp_shard=1";
  text +=
      "    tokens = tokens_of(arguments.data, arguments.token_bytes)\n"
      "    listed = [json.loads(line) for line in open(arguments.batches)] if arguments.batches else None\n"
      "    micro_batches = GLOBAL_BATCH // REPLICAS // MICRO_BATCH\n"
      "    if rank == 0:\n"
      "        print(f\"device mesh with parallelism: pp=1, dp_replicate=" +
      copies +
      ", cp=1, tp=1\")\n"
      "        print(f\"Trainer is initialized with local batch size {MICRO_BATCH}, global batch size "
      "{GLOBAL_BATCH}, \"\n"
      "              f\"gradient accumulation steps {micro_batches}, sequence length {SEQ_LEN}\")\n"
      "        print(f\"{count} parameters\", flush=True)\n\n"
      "    before = time.perf_counter()\n"
      "    for step in range(arguments.steps):\n"
      "        begins = begins_of(step, tokens, listed)[rank::REPLICAS]\n"
      "        total = torch.zeros((), device=device)\n"
      "        for number in range(micro_batches):\n"
      "            mine = begins[number * MICRO_BATCH:(number + 1) * MICRO_BATCH]\n"
      "            inputs, labels = batch_of(tokens, mine, device)\n";
  text += micro_batch_lines(plan);
  text += "            total += loss.detach() / micro_batches\n";
  text += update_lines(plan);
  text +=
      "        dist.all_reduce(total)  # waits for every rank, so that the time is the step's\n"
      "        mean, now = total.item() / REPLICAS, time.perf_counter()\n"
      "        if rank == 0:\n"
      "            rate = GLOBAL_BATCH * SEQ_LEN / (now - before) / world\n"
      "            print(f\"step: {step + 1}  loss: {mean:.7f}  time: {now - before:.4f} s  tps: "
      "{rate:,.1f}\", "
      "flush=True)\n"
      "        before = now\n"
      "    dist.destroy_process_group()\n\n\n"
      "if __name__ == \"__main__\":\n    main()\n";
  return text;
}

}  // namespace

namespace {

// Without adapters, which train.py does not have.
std::int64_t parameters_of_script(const Workload& workload) {
  Workload whole = workload;
  whole.transformer->fine_tuning = {};
  whole.operators = transformer_operators(*whole.transformer);
  return whole.parameters();
}

}  // namespace

std::string torchrun_script(const Plan& plan, std::vector<std::string>* notes) {
  const std::string model = torchrun_model(plan, notes);
  const std::string below = plan_constants(plan) + model + data_functions(plan) + main_function(plan, notes);
  std::string above = head(plan);
  for (const std::string module : {"contextlib", "math"})
    if (below.find(module + ".") == std::string::npos)
      above.erase(above.find("import " + module + "\n"), module.size() + 8);
  return above + below;
}

std::vector<ExportedFile> export_torchrun(const Plan& plan) {
  check_forms(plan);
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::vector<std::string> notes = notes_on_rare_choices(plan, "PyTorch");
  const std::string script = torchrun_script(plan, &notes);
  if (c.zero == 1)
    notes.emplace_back(
        "ZeroRedundancyOptimizer reduces whole gradients and sends updated weights from their owners; the "
        "plan "
        "scatters and gathers them, in half the bytes");
  if (c.zero == 1 && c.hybrid())
    notes.push_back(fmt::format("it shards over all replicas; the plan's groups are of {}", c.shard_group));
  if (const FineTuning& tuning = plan.job->workload.transformer->fine_tuning; tuning.any())
    notes.push_back(fmt::format("train.py trains all weights; the plan is for {}", text_of(tuning)));
  if (is_narrow(t.precision))
    notes.push_back(fmt::format("{} needs torchao's or Transformer Engine's modules; this runs bf16",
                                name_of(t.precision)));
  if (c.zero < 2 && t.precision != DType::fp32 && t.precision != DType::tf32)
    notes.push_back(fmt::format(
        "weights stay in fp32 and are cast before each product (autocast), as are their gradients; "
        "the plan keeps gradients in {}",
        name_of(plan.gradient_type())));
  if (fsdp(c) && c.dp > 1 && c.zero == 3 && equal_micro_batches(plan, "torchrun") > 1)
    notes.emplace_back("gradients are reduced behind every micro-batch, so that no rank holds them whole");
  const int shards = !fsdp(c) ? 1 : c.shard_group > 0 ? c.shard_group : c.dp;
  std::string launch =
      script_head(plan, fmt::format("PyTorch {} and later", oldest_pytorch(plan)), notes, ModelIs::built);
  launch += log_begins_with(
      {fmt::format("device mesh with parallelism: pp=1, dp_replicate={}, dp_shard={}, cp=1, tp=1",
                   c.dp / shards, shards),
       fmt::format("Trainer is initialized with local batch size {}, global batch size {}, gradient "
                   "accumulation steps {}, "
                   "sequence length {}",
                   c.micro_batch, t.global_batch, equal_micro_batches(plan, "torchrun"), t.seq_len),
       fmt::format("{} parameters", parameters_of_script(plan.job->workload))});
  launch += nccl_environment(plan);
  launch += torchrun_line(plan) + "  train.py \"$@\"\n";
  return {{"launch.sh", launch}, {"train.py", script}};
}

}  // namespace orrery::planner
