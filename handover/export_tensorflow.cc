// TensorFlow 2: TF_CONFIG for every process, and the strategy under which a person's Keras model is trained.
#include <fmt/format.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/format.h"
#include "handover/export_common.h"

namespace orrery::planner {
namespace {

bool by_servers(const Choices& c) {
  return c.has_servers();
}

std::vector<std::string> notes_of(const Plan& plan) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::vector<std::string> notes;
  refuse_forms({{"tensor", c.tp}, {"pipeline", c.pp}, {"context", c.cp}, {"expert", c.ep}}, "tensorflow",
               "expected data parallelism or parameter servers");
  for (const std::string& note : notes_on_rare_choices(plan, "TensorFlow"))
    if (!by_servers(c) || note.find("synchronisation") == std::string::npos) notes.push_back(note);
  if (c.zero > 0)
    notes.push_back(
        fmt::format("TensorFlow shards no states: every device holds all of them; the plan's ZeRO stage "
                    "is {}",
                    c.zero));
  if (c.recompute != Recompute::none)
    notes.push_back(
        fmt::format("recomputation is the model's: tf.recompute_grad around {}", what_runs_again(c)));
  if (const std::int64_t micro_batches = equal_micro_batches(plan, "TensorFlow"); micro_batches > 1)
    notes.push_back(
        fmt::format("the plan accumulates {} micro-batches of {}: a Keras optimizer's "
                    "gradient_accumulation_steps={}",
                    micro_batches, counted(c.micro_batch, "sample"), micro_batches));
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("TensorFlow does not compress gradients by fp16");
  if (!c.overlap_grad_reduce && c.dp > 1)
    notes.emplace_back("gradients are reduced while the backward pass runs; the plan's behind it");
  if (by_servers(c)) {
    if (c.sync == Sync::parameter_server)
      notes.emplace_back(
          "TensorFlow's parameter servers do not wait for all workers: the plan's do, which is slower and "
          "exact");
    if (c.staleness > 0)
      notes.push_back(
          fmt::format("workers may be any number of steps ahead; the plan's at most {}", c.staleness));
  }
  if (is_narrow(t.precision))
    notes.push_back(fmt::format("{} is not there; this runs bf16", name_of(t.precision)));
  if (!t.fused_attention && has_attention(plan.job->workload))
    notes.emplace_back("attention is the model's own to write");
  notes.emplace_back("the model is your script's: build and compile it under strategy.scope() (strategy.py)");
  return notes;
}

const char* policy_of(DType precision) {
  return precision == DType::fp32 || precision == DType::tf32 ? "float32"
         : precision == DType::fp16                           ? "mixed_float16"
                                                              : "mixed_bfloat16";
}

std::string strategy_module(const Plan& plan) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::string text = fmt::format(
      "\"\"\"The plan of {} on {}: written by orrery export. A script imports `strategy` and the "
      "numbers.\"\"\"\n"
      "import tensorflow as tf\n\n"
      "GLOBAL_BATCH, {}REPLICAS = {}, {}{}\n"
      "tf.keras.mixed_precision.set_global_policy(\"{}\")\n"
      "tf.config.experimental.enable_tensor_float_32_execution({})\n",
      plan.job->workload.name, plan.job->cluster.name, t.seq_len > 0 ? "SEQ_LEN, " : "", t.global_batch,
      t.seq_len > 0 ? fmt::format("{}, ", t.seq_len) : "", c.dp, policy_of(t.precision),
      t.precision == DType::tf32 ? "True" : "False");
  if (by_servers(c))
    return text +
           "resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
           "if resolver.task_type in (\"worker\", \"ps\"):  # serve until the coordinator ends\n"
           "    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, "
           "task_index=resolver.task_id,\n"
           "                         protocol=\"grpc\").join()\n"
           "strategy = tf.distribute.ParameterServerStrategy(\n"
           "    resolver, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(\n"
           "        min_shard_bytes=256 << 10, max_shards=" +
           std::to_string(std::max(1, c.servers)) + "))\n";
  std::string options = "communication_options=tf.distribute.experimental.CommunicationOptions(";
  if (const double bucket = plan.bucket_bytes(); bucket > 0)
    options += fmt::format("bytes_per_pack={:.0f}, ", bucket);
  options += plan.job->cluster.communication.library == CommunicationLibrary::nccl
                 ? "implementation=tf.distribute.experimental.CommunicationImplementation.NCCL)"
                 : "implementation=tf.distribute.experimental.CommunicationImplementation.RING)";
  return text +
         "# All devices of a node are one worker's; TF_CONFIG names the nodes.\n"
         "strategy = tf.distribute.MultiWorkerMirroredStrategy(\n    " +
         options +
         ")\n"
         "if strategy.num_replicas_in_sync != REPLICAS:\n"
         "    raise SystemExit(f\"strategy.py: {strategy.num_replicas_in_sync} devices (expected the plan's "
         "{REPLICAS})\")\n";
}

}  // namespace

std::vector<ExportedFile> export_tensorflow(const Plan& plan) {
  const Choices& c = plan.choices;
  const int nodes = nodes_used(plan), each = ranks_per_node(plan);
  std::string script = script_head(plan, "TensorFlow 2.15 and later", notes_of(plan), ModelIs::by_script) +
                       nccl_environment(plan);
  script += fmt::format(
      "# On every node: HOSTS=\"host0 host1 …\" INDEX=0 TRAIN=train.py ./launch.sh, INDEX counting HOSTS.\n"
      "read -r -a hosts <<< \"${{HOSTS:?{} hosts, with blanks}}\"\n"
      "[ ${{#hosts[@]}} = {} ] || {{ echo \"launch.sh: ${{#hosts[@]}} hosts (expected {})\" >&2; exit 2; }}\n"
      ": \"${{INDEX:?which of HOSTS this is, from 0}}\" \"${{TRAIN:?your training script}}\"\n"
      "export PYTHONPATH=\"$PWD${{PYTHONPATH:+:$PYTHONPATH}}\"  # strategy.py\n"
      "list() {{ local text; text=$(printf '\"%s\",' \"$@\"); echo \"[${{text%,}}]\"; }}\n",
      nodes, nodes, nodes);
  if (!by_servers(c)) {
    script +=
        "export TF_CONFIG=\"{\\\"cluster\\\": {\\\"worker\\\": $(list \"${hosts[@]/%/:2222}\")}, "
        "\\\"task\\\": {\\\"type\\\": \\\"worker\\\", \\\"index\\\": $INDEX}}\"\n"
        "exec python3 \"$TRAIN\" \"$@\"\n";
  } else {
    const int servers = std::max(1, c.servers);
    script += fmt::format(
        "workers=() servers=()\n"
        "for host in \"${{hosts[@]}}\"; do for i in {{0..{}}}; do workers+=(\"$host:$((2300 + i))\"); done; "
        "done\n"
        "workers=(\"${{workers[@]:0:{}}}\")\n"
        "for ((i = 0; i < {}; ++i)); do servers+=(\"${{hosts[i % {}]}}:$((2400 + i / {}))\"); done\n"
        "cluster=\"{{\\\"worker\\\": $(list \"${{workers[@]}}\"), \\\"ps\\\": $(list \"${{servers[@]}}\"), "
        "\\\"chief\\\": [\\\"${{hosts[0]}}:2222\\\"]}}\"\n"
        "start() {{  # type, index, devices that it sees; its arguments\n"
        "  CUDA_VISIBLE_DEVICES=$3 TF_CONFIG=\"{{\\\"cluster\\\": $cluster, \\\"task\\\": {{\\\"type\\\": "
        "\\\"$1\\\", "
        "\\\"index\\\": $2}}}}\" \\\n    python3 \"$TRAIN\" \"${{@:4}}\" &\n}}\n"
        "for ((i = 0; i < {}; ++i)); do\n"
        "  worker=$((INDEX * {} + i))\n"
        "  [ $worker -ge {} ] || start worker $worker $i \"$@\"\n"
        "done\n"
        "for ((i = INDEX; i < {}; i += {})); do start ps $i '' \"$@\"; done\n"
        "if [ \"$INDEX\" = 0 ]; then\n"
        "  start chief 0 '' \"$@\"\n"
        "  wait $! || status=$?  # the others serve until they are ended\n"
        "  mapfile -t started < <(jobs -p); kill \"${{started[@]}}\" 2>/dev/null || true\n"
        "  exit ${{status:-0}}\n"
        "fi\n"
        "wait\n",
        each - 1, c.dp, servers, nodes, nodes, each, each, c.dp, servers, nodes);
  }
  return {{"launch.sh", script}, {"strategy.py", strategy_module(plan)}};
}

}  // namespace orrery::planner
