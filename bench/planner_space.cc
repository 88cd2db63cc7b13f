// The space of plans of a job, dimension by dimension: which values are searched and how many plans have
// each. By default of GPT-3 175B on 1,024 A100 (bench/planner_space.txt holds its output).
//   planner_space [WORKLOAD CLUSTER NODES GLOBAL_BATCH SEQ_LEN]
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "planner/space/space.h"
#include "program/runtime_profile.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

// Plans by value of one dimension; numbers in their order, words after them.
class Counts {
 public:
  explicit Counts(std::string name) : name_(std::move(name)) {}
  void add(std::int64_t value, std::int64_t plans) { numbers_[value] += plans; }
  void add(const std::string& value, std::int64_t plans) { words_[value] += plans; }
  void print() const {
    fmt::print("{} ({} values)\n", name_, numbers_.size() + words_.size());
    for (const auto& [value, plans] : words_) fmt::print("  {:<24} {:>12}\n", value, plans);
    for (const auto& [value, plans] : numbers_) fmt::print("  {:<24} {:>12}\n", value, plans);
  }

 private:
  std::string name_;
  std::map<std::int64_t, std::int64_t> numbers_;
  std::map<std::string, std::int64_t> words_;
};

// Of overlaps x buckets, how many are plans of their own.
std::int64_t details(const planner::Family& family, int zero) {
  std::int64_t count = 0;
  for (std::size_t o = 0; o < family.overlaps->size(); ++o)
    for (std::size_t b = 0; b < family.buckets->size(); ++b) count += family.distinct(zero, o, b) ? 1 : 0;
  return count;
}

std::string cut_of(const Choices& choices) {
  if (choices.pp == 1) return "one stage";
  return choices.stage_layers.empty() ? "even" : "uneven (by FLOPs, or ends counted)";
}

int run(const std::vector<std::string>& arguments) {
  const std::vector<std::string> words =
      arguments.size() == 5 ? arguments
                            : std::vector<std::string>{"gpt3-175b", "dgx-a100", "128", "1536", "2048"};
  const auto job = std::make_shared<Job>();
  job->workload = load_workload(words[0]);
  job->cluster = with_nodes(load_cluster(words[1]), std::stoi(words[2]));
  job->runtime = catalog_runtime("megatron-core");
  job->training.global_batch = std::stoll(words[3]);
  job->training.seq_len = std::stoi(words[4]);
  job->training.fused_attention = job->runtime.fused_attention;

  std::vector<Counts> all;
  for (const char* name :
       {"tp", "pp", "dp", "cp", "ep", "order", "micro-batch", "schedule", "interleave", "cut",
        "sequence parallel", "recompute", "full recomputation of the first K layers of a stage, K", "ZeRO",
        "shard group", "overlap of the reduction", "bucket bytes (0: the runtime's)"})
    all.emplace_back(name);
  enum {
    tp,
    pp,
    dp,
    cp,
    ep,
    order,
    micro,
    schedule,
    chunks,
    cut,
    sp,
    again,
    first,
    zero,
    group,
    overlap,
    bucket
  };
  std::int64_t plans = 0, families = 0;
  planner::for_each_family(job, {}, [&](planner::Family&& family) {
    const Choices& c = family.core;
    const std::int64_t count = family.count();
    plans += count;
    ++families;
    all[tp].add(c.tp, count);
    all[pp].add(c.pp, count);
    all[dp].add(c.dp, count);
    all[cp].add(c.cp, count);
    all[ep].add(c.ep, count);
    all[order].add(c.order[3] == Dimension::dp ? "tp,cp,ep,dp,pp" : "tp,cp,ep,pp,dp", count);
    all[micro].add(c.micro_batch, count);
    all[schedule].add(std::string(name_of(c.schedule)), count);
    all[chunks].add(c.interleave, count);
    all[cut].add(cut_of(c), count);
    all[sp].add(c.sequence_parallel ? "on" : "off", count);
    for (const planner::Recomputed& recomputed : *family.recomputes) {
      const std::int64_t of = count / static_cast<std::int64_t>(family.recomputes->size());
      const bool part = recomputed.layers > 0;
      const std::string kind =
          recomputed.modules == 0
              ? std::string(name_of(recomputed.kind))
              : fmt::format("selective: {}", fmt::join(names_of(recomputed.modules), ", "));
      all[again].add(part ? "full, first K layers" : kind, of);
      if (part) all[first].add(recomputed.layers, of);
    }
    const auto recomputes = static_cast<std::int64_t>(family.recomputes->size());
    for (const planner::Sharding& sharding : *family.shardings) {
      const std::int64_t of = details(family, sharding.zero) * recomputes;
      all[zero].add(sharding.zero, of);
      all[group].add(sharding.group == 0 ? std::string(sharding.zero == 0 ? "no shards" : "all of dp x cp")
                                         : fmt::format("hybrid, {:>4} ranks", sharding.group),
                     of);
      for (std::size_t o = 0; o < family.overlaps->size(); ++o) {
        for (std::size_t b = 0; b < family.buckets->size(); ++b) {
          if (!family.distinct(sharding.zero, o, b)) continue;
          all[overlap].add((*family.overlaps)[o] ? "on" : "off", recomputes);
          if (sharding.zero == 3)
            all[bucket].add("a layer each (ZeRO-3)", recomputes);
          else
            all[bucket].add(static_cast<std::int64_t>((*family.buckets)[b].bytes), recomputes);
        }
      }
    }
  });
  fmt::print(
      "{} on {} devices of {}, global batch {}, sequences of {}: {} plans with distinct Programs in {} "
      "families\n",
      job->workload.name, job->cluster.devices(), job->cluster.name, job->training.global_batch,
      job->training.seq_len, plans, families);
  for (const Counts& counts : all) counts.print();
  return 0;
}

}  // namespace
}  // namespace orrery

int main(int count, char** words) {
  try {
    return orrery::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "planner_space: {}\n", error.what());
    return 2;
  }
}
