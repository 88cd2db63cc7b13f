#include "exec/state/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/note.h"
#include "exec/communicators/gather.h"
#include "exec/state/not_finite.h"
#include "exec/state/whole_tensors.h"

namespace orrery::exec {
namespace fs = std::filesystem;
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kPartial = ".partial";
constexpr int kFormat = 2;
constexpr const char* kCheckSum = "check_sum";
constexpr std::size_t kKept = 2;  // the newest and the one before it

// Word by word of 32 bits.
class CheckSum {
 public:
  void add(std::span<const float> values) {
    const auto* words = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t at = 0; at + sizeof(std::uint32_t) <= values.size_bytes(); at += sizeof(std::uint32_t)) {
      std::uint32_t word = 0;
      std::memcpy(&word, words + at, sizeof(word));
      sum_ = fnv_step(sum_, word);
    }
  }
  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  std::uint64_t sum_ = kFnvBasis;
};

[[noreturn]] void cannot_write(const fs::path& path) {
  throw UserError(path.string(), 0, fmt::format("cannot be written: {}", std::strerror(errno)),
                  "a folder that every rank can write, with room");
}

void sync_path(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) cannot_write(path);
  const int failed = ::fsync(file);
  ::close(file);
  if (failed != 0) cannot_write(path);
}

std::string file_name(int rank) {
  return fmt::format("rank-{:05d}.bin", rank);
}

fs::path path_of(const std::string& folder, std::int64_t steps) {
  return fs::path(folder) / fmt::format("{}{:08d}", kPrefix, steps);
}

std::int64_t elements_of(const std::vector<LeftOut>& left_out) {
  std::int64_t elements = 0;
  for (const LeftOut& bucket : left_out) elements += bucket.elements;
  return elements;
}

// Tells layouts apart: what stands where in this rank's buckets.
std::string layout_of(const Parameters& parameters) {
  std::uint64_t hash = kFnvBasis;
  const auto add = [&](std::int64_t value) { hash = fnv_step(hash, static_cast<std::uint64_t>(value)); };
  const ShardPlace& place = parameters.place();
  for (const int part : {place.tp, place.tp_rank, place.ep, place.ep_rank, place.etp, place.etp_rank})
    add(part);
  for (int bucket = 0; bucket < parameters.buckets(); ++bucket) add(parameters.elements(bucket));
  for (const HeldTensor& held : parameters.held()) {
    add(static_cast<std::int64_t>(fnv_of(held.name())));
    add(held.bucket);
    add(held.offset);
  }
  return fmt::format("{:016x}", hash);
}

// This rank's pieces into its file, and behind them what compression left out; what the manifest says of it.
// Throws NotFinite: a checkpoint that goes on to nothing would push out those that do.
Json write_pieces(const fs::path& path, const Plan& plan, const KeptState& state, Device& device,
                  std::int64_t steps, int rank) {
  const Parameters& parameters = state.parameters;
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) cannot_write(path);
  CheckSum sum;
  std::uint64_t offset = 0;
  const auto write = [&](const std::vector<float>& values, std::string_view name, std::string_view slot) {
    if (!all_finite(values)) {
      std::fclose(file);
      throw NotFinite(
          fmt::format("{} of {} is {} after step {} on rank {}: no checkpoint is made of it "
                      "(expected a smaller `learning_rate`, or `on_nan` skip)",
                      slot, name, kNotFinite, steps, rank));
    }
    if (std::fwrite(values.data(), sizeof(float), values.size(), file) != values.size()) {
      std::fclose(file);
      cannot_write(path);
    }
    sum.add(values);
    offset += values.size() * sizeof(float);
  };
  Json pieces = Json::array();
  const auto describe = [&](const std::string& name, Slot slot, const Piece& piece, std::size_t elements) {
    pieces.push_back({{"tensor", name},
                      {"slot", name_of(slot)},
                      {"tp", piece.place.tp},
                      {"tp_rank", piece.place.tp_rank},
                      {"ep", piece.place.ep},
                      {"ep_rank", piece.place.ep_rank},
                      {"etp", piece.place.etp},
                      {"etp_rank", piece.place.etp_rank},
                      {"begin", piece.begin},
                      {"end", piece.end},
                      {"offset", offset - elements * sizeof(float)}});
  };
  for (const HeldTensor& held : parameters.held()) {
    const Piece piece = piece_of(parameters, held);
    if (piece.begin == piece.end) continue;
    for (int s = 0; s < slots_of(plan.job->training.optimizer); ++s) {
      const std::vector<float> values = piece_values(parameters, device, held, piece, kSlots[s]);
      write(values, held.name(), name_of(kSlots[s]));
      describe(held.name(), kSlots[s], piece, values.size());
    }
  }
  for (const RunningStatistics::Tensor& tensor : state.statistics.tensors()) {
    if (!tensor.written) continue;
    write(state.statistics.values(tensor), tensor.name, name_of(Slot::weight));
    describe(tensor.name, Slot::weight, {{}, tensor.begin, tensor.begin + tensor.elements},
             static_cast<std::size_t>(tensor.elements));
  }
  const std::uint64_t left_out_offset = offset;
  for (const LeftOut& bucket : state.left_out) {
    std::vector<float> values(static_cast<std::size_t>(bucket.elements));
    device.copy_to_host(values.data(), bucket.data, values.size() * sizeof(float));
    write(values, "the gradients", "what compression left out");
  }
  const bool failed = std::fflush(file) != 0 || ::fsync(::fileno(file)) != 0;
  if (std::fclose(file) != 0 || failed) cannot_write(path);
  Json result = {
      {"file", path.filename().string()}, {"bytes", offset}, {"check_sum", sum.text()}, {"pieces", pieces}};
  if (!state.left_out.empty())
    result["left_out"] = {{"layout", layout_of(parameters)},
                          {"offset", left_out_offset},
                          {"elements", elements_of(state.left_out)}};
  return result;
}

// The steps of a finished checkpoint's folder name; nothing for any other name.
std::optional<std::int64_t> steps_of(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string digits = name.substr(std::min(name.size(), std::strlen(kPrefix)));
  if (name.rfind(kPrefix, 0) != 0 || digits.empty() || digits.size() > 15 ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

std::vector<std::pair<std::int64_t, fs::path>> finished_in(const std::string& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (const auto steps = steps_of(at->path())) found.emplace_back(*steps, at->path());
  std::sort(found.begin(), found.end());
  return found;
}

// Of a manifest without its own check sum. Keys are in order and numbers as they were written.
std::string check_sum_of(const Json& manifest) {
  return fmt::format("{:016x}", fnv_of(manifest.dump()));
}

Json read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  Json manifest = read_json(path);
  if (manifest.at("format").get<int>() != kFormat)
    throw UserError(path.string(), 0, "is of another format", fmt::format("format {}", kFormat));
  const auto said = manifest.at(kCheckSum).get<std::string>();
  manifest.erase(kCheckSum);
  if (check_sum_of(manifest) != said)
    throw UserError(path.string(), 0, "is damaged: its check sum differs", "the file as it was written");
  return manifest;
}

struct StoredPiece {
  fs::path file;
  std::uint64_t offset = 0;
  Piece piece;
};

using PieceIndex =
    std::map<std::pair<std::string, std::string>, std::vector<StoredPiece>>;  // by tensor and slot

PieceIndex index_of(const Json& manifest, const fs::path& checkpoint) {
  PieceIndex index;
  for (const Json& file : manifest.at("files"))
    for (const Json& entry : file.at("pieces")) {
      StoredPiece stored;
      stored.file = checkpoint / file.at("file").get<std::string>();
      stored.offset = entry.at("offset").get<std::uint64_t>();
      stored.piece.place = {entry.at("tp").get<int>(), entry.at("tp_rank").get<int>(),
                            entry.at("ep").get<int>(), entry.at("ep_rank").get<int>(),
                            entry.value("etp", 1),     entry.value("etp_rank", 0)};
      stored.piece.begin = entry.at("begin").get<std::int64_t>();
      stored.piece.end = entry.at("end").get<std::int64_t>();
      index[{entry.at("tensor").get<std::string>(), entry.at("slot").get<std::string>()}].push_back(stored);
    }
  return index;
}

// Throws UserError where a part is not as it was written.
void verify(const Json& manifest, const fs::path& checkpoint) {
  std::vector<float> values(1 << 20);
  for (const Json& file : manifest.at("files")) {
    const fs::path path = checkpoint / file.at("file").get<std::string>();
    std::error_code code;
    if (fs::file_size(path, code) != file.at("bytes").get<std::uint64_t>() || code)
      throw UserError(path.string(), 0, "is damaged: it has another size", "the file as it was written");
    std::ifstream in(path, std::ios::binary);
    CheckSum sum;
    while (in.read(reinterpret_cast<char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(float))) ||
           in.gcount() > 0)
      sum.add({values.data(), static_cast<std::size_t>(in.gcount()) / sizeof(float)});
    if (sum.text() != file.at(kCheckSum).get<std::string>())
      throw UserError(path.string(), 0, "is damaged: its check sum differs", "the file as it was written");
  }
}

// What is wrong with a checkpoint; nothing where it is as it was written.
std::optional<std::string> fault_of(const fs::path& checkpoint) {
  try {
    verify(read_manifest(checkpoint), checkpoint);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception&) {
    return (checkpoint / kManifest).string() + ": is no manifest (expected the file as it was written)";
  }
}

bool sound(const ShardPlace& place) {
  const auto among = [](int rank, int ranks) { return rank >= 0 && rank < ranks; };
  return among(place.tp_rank, place.tp) && among(place.ep_rank, place.ep) && among(place.etp_rank, place.etp);
}

// Elements that no piece covers keep what `whole` holds; how many were covered.
std::int64_t read_whole(const std::vector<StoredPiece>& pieces, const ParameterTensor& tensor,
                        std::span<float> whole) {
  std::int64_t covered = 0;
  for (const StoredPiece& stored : pieces) {
    const std::int64_t count = stored.piece.end - stored.piece.begin;
    std::ifstream in(stored.file, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(stored.offset));
    std::vector<float> values(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
    if (count < 0 || !sound(stored.piece.place) ||
        !in.read(reinterpret_cast<char*>(values.data()), count * static_cast<std::streamsize>(sizeof(float))))
      throw UserError(stored.file.string(), 0, "does not hold what the manifest says",
                      "the file as it was written");
    covered += put_piece(tensor, stored.piece, values, whole);
  }
  return covered;
}

// Where the same rank of the same world, with the same buckets, wrote it.
void read_left_out(const Json& manifest, const fs::path& checkpoint, const Plan& plan,
                   const Parameters& parameters, const std::vector<LeftOut>& left_out, Device& device,
                   int rank) {
  const Json& files = manifest.at("files");
  if (left_out.empty() || files.size() != static_cast<std::size_t>(plan.choices.world())) return;
  const Json& file = files.at(static_cast<std::size_t>(rank));
  if (!file.contains("left_out")) return;
  const Json& stored = file.at("left_out");
  if (stored.at("layout").get<std::string>() != layout_of(parameters) ||
      stored.at("elements").get<std::int64_t>() != elements_of(left_out))
    return;
  const fs::path path = checkpoint / file.at("file").get<std::string>();
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(stored.at("offset").get<std::uint64_t>()));
  for (const LeftOut& bucket : left_out) {
    std::vector<float> values(static_cast<std::size_t>(bucket.elements));
    if (!in.read(reinterpret_cast<char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(float))))
      throw UserError(path.string(), 0, "does not hold what the manifest says", "the file as it was written");
    device.copy_to_device(bucket.data, values.data(), values.size() * sizeof(float));
  }
}

constexpr const char* kAllDamaged = "none";

// What interrupted runs left behind.
void remove_partial(const std::string& folder) {
  std::error_code code;
  std::vector<fs::path> partial;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kPartial)) partial.push_back(at->path());
  }
  for (const fs::path& path : partial) fs::remove_all(path, code);
}

void write_checkpoint(const std::string& folder, const TrainingCounts& counts, const Plan& plan,
                      const KeptState& state, const DataMark& data, Device& device, Communicator& control) {
  const fs::path finished = path_of(folder, counts.steps);
  const fs::path partial = finished.string() + kPartial;
  std::error_code code;
  if (control.rank() == 0) {
    remove_partial(folder);
    if (!fs::create_directories(partial, code)) {
      errno = code.value();
      cannot_write(partial);
    }
  }
  control.barrier();
  Json mine;
  std::exception_ptr failed;
  try {
    mine =
        write_pieces(partial / file_name(control.rank()), plan, state, device, counts.steps, control.rank());
  } catch (...) {
    failed = std::current_exception();
  }
  // Whoever fails takes the folder along. The others are done with it then, or they would miss it, and the
  // first of them say that instead of what is wrong.
  control.barrier();
  if (failed) std::rethrow_exception(failed);
  const std::vector<std::string> all = gather_to_root(control, mine.dump());
  if (control.rank() == 0) {
    Json manifest = {{"format", kFormat},
                     {"steps", counts.steps},
                     {"updates", counts.updates},
                     {"loss_scale", counts.scaler.scale()},
                     {"finite_steps", counts.scaler.good()},
                     {"batches", state.statistics.batches()},
                     {"workload", plan.job->workload.name},
                     {"optimizer", name_of(plan.job->training.optimizer)},
                     {"seed", plan.job->training.seed},
                     {"data", {{"name", data.name}, {"size", data.size}, {kCheckSum, data.check_sum}}},
                     {"global_batch", plan.job->training.global_batch},
                     {"seq_len", plan.job->training.seq_len},
                     {"files", Json::array()}};
    for (const std::string& file : all) manifest["files"].push_back(Json::parse(file));
    manifest[kCheckSum] = check_sum_of(manifest);
    write_file_atomically(partial / kManifest, manifest.dump());
    sync_path(partial / kManifest);
    sync_path(partial);
    fs::remove_all(finished, code);  // the same steps once more, after a restart
    fs::rename(partial, finished, code);
    if (code) {
      errno = code.value();
      cannot_write(finished);
    }
    sync_path(folder);
    auto old = finished_in(folder);
    for (std::size_t i = 0; i + kKept < old.size(); ++i) fs::remove_all(old[i].second, code);
  }
  control.barrier();
}

}  // namespace

void check_place_for_checkpoints(const std::string& folder, Communicator& control) {
  std::error_code code;
  if (control.rank() == 0) {
    fs::create_directories(folder, code);
    if (code) {
      errno = code.value();
      cannot_write(folder);
    }
    const fs::path probe = fs::path(folder) / fmt::format("{}probe{}", kPrefix, kPartial);
    std::FILE* file = std::fopen(probe.c_str(), "wbe");
    if (file == nullptr) cannot_write(folder);
    const bool written = std::fputc(0, file) != EOF && std::fflush(file) == 0;
    const int reason = errno;
    std::fclose(file);
    fs::remove(probe, code);
    errno = reason;
    if (!written) cannot_write(folder);
  }
  control.barrier();
  if (!fs::is_directory(folder, code))
    throw UserError(folder, 0, "is not there for every rank", "a folder that all hosts share");
}

void save_checkpoint(const std::string& folder, const TrainingCounts& counts, const Plan& plan,
                     const KeptState& state, const DataMark& data, Device& device, Communicator& control) {
  try {
    write_checkpoint(folder, counts, plan, state, data, device, control);
  } catch (...) {
    // A full disk would stay so: whoever comes upon it takes all ranks' pieces along, for the others are
    // ended.
    std::error_code code;
    fs::remove_all(path_of(folder, counts.steps).string() + kPartial, code);
    throw;
  }
}

std::optional<CheckpointFound> newest_checkpoint(const std::string& folder, Communicator& control) {
  std::string steps;
  if (control.rank() == 0) {
    const auto found = finished_in(folder);
    for (auto at = found.rbegin(); at != found.rend() && steps.empty(); ++at) {
      const std::optional<std::string> fault = fault_of(at->second);
      if (!fault)
        steps = std::to_string(at->first);
      else
        fmt::print(stderr, "{}{}; an older checkpoint is looked for\n", kNote, *fault);
    }
    if (steps.empty() && !found.empty()) steps = kAllDamaged;
  }
  steps = broadcast_from_root(control, steps);
  if (steps.empty()) return std::nullopt;
  if (steps == kAllDamaged)
    throw UserError(folder, 0, "has no checkpoint that is as it was written", "one that is, or no `restart`");
  const std::int64_t number = std::stoll(steps);
  return CheckpointFound{path_of(folder, number).string(), number};
}

std::optional<CheckpointFound> checkpoint_after(const std::string& folder, std::int64_t steps,
                                                Communicator& control) {
  const fs::path path = path_of(folder, steps);
  std::string fault;
  if (control.rank() == 0) {
    std::error_code code;
    if (!fs::is_directory(path, code))
      fault = path.string() + ": there is no such checkpoint (expected one of the folder)";
    else
      fault = fault_of(path).value_or("");
  }
  fault = broadcast_from_root(control, fault);
  if (!fault.empty()) throw UserError(fault);
  return CheckpointFound{path.string(), steps};
}

TrainingCounts load_checkpoint(const CheckpointFound& found, const Plan& plan, const KeptState& state,
                               Device& device, int rank) {
  const fs::path manifest_file = fs::path(found.path) / kManifest;
  try {
    const Json manifest = read_manifest(found.path);
    const auto optimizer = manifest.at("optimizer").get<std::string>();
    if (optimizer_from_name(optimizer) != plan.job->training.optimizer)
      throw UserError(manifest_file.string(), 0, "was trained with " + optimizer,
                      std::string(name_of(plan.job->training.optimizer)) + ", as the plan says");
    // The order of data follows from the seed: another would train some samples twice and others never.
    if (const auto seed = manifest.at("seed").get<std::uint64_t>(); seed != plan.job->training.seed)
      throw UserError(manifest_file.string(), 0, fmt::format("was trained with seed {}", seed),
                      fmt::format("the same, not `seed` {}", plan.job->training.seed));
    const PieceIndex index = index_of(manifest, found.path);
    const auto whole_of = [&](const std::string& name, Slot slot, const ParameterTensor& tensor) {
      const auto pieces = index.find({name, std::string(name_of(slot))});
      if (pieces == index.end())
        throw UserError(manifest_file.string(), 0, "has no tensor '" + name + "'",
                        "a checkpoint of " + plan.job->workload.name);
      std::vector<float> whole(static_cast<std::size_t>(tensor.elements()));
      if (read_whole(pieces->second, tensor, whole) != tensor.elements())
        throw UserError(manifest_file.string(), 0, "holds tensor '" + name + "' in another size",
                        "a checkpoint of " + plan.job->workload.name);
      return whole;
    };
    for (const HeldTensor& held : state.parameters.held())
      for (int s = 0; s < slots_of(plan.job->training.optimizer); ++s)
        set_from_whole(state.parameters, device, held, kSlots[s],
                       whole_of(held.name(), kSlots[s], *held.tensor));
    for (const RunningStatistics::Tensor& statistic : state.statistics.tensors()) {
      ParameterTensor tensor;
      tensor.shape = {statistic.channels};
      state.statistics.set(statistic, whole_of(statistic.name, Slot::weight, tensor));
    }
    state.statistics.set_batches(manifest.at("batches").get<std::int64_t>());
    read_left_out(manifest, found.path, plan, state.parameters, state.left_out, device, rank);
    return {found.steps, manifest.at("updates").get<std::int64_t>(),
            LossScaler(manifest.at("loss_scale").get<float>(), manifest.at("finite_steps").get<int>())};
  } catch (const Json::exception& error) {
    throw UserError(manifest_file.string(), 0, "is no manifest", "the file as it was written");
  }
}

std::string differs(const CheckpointFound& found, const Plan& plan, const DataMark& data) {
  const Json manifest = read_manifest(found.path);
  if (!manifest.contains("data")) return {};
  std::vector<std::string> others;
  const Json& before = manifest.at("data");
  const auto name_of_data = [](const std::string& name) { return name.empty() ? "synthetic data" : name; };
  const auto name = before.at("name").get<std::string>();
  if (before.at("size").get<std::uint64_t>() != data.size ||
      before.at(kCheckSum).get<std::string>() != data.check_sum)
    others.push_back(name == data.name
                         ? fmt::format("on {} as it was then", name_of_data(name))
                         : fmt::format("on {}, not {}", name_of_data(name), name_of_data(data.name)));
  const auto compare = [&](const char* key, const char* what, std::int64_t now) {
    if (const auto then = manifest.at(key).get<std::int64_t>(); then != now)
      others.push_back(fmt::format("with {} {}, not {}", what, then, now));
  };
  compare("global_batch", "a global batch of", plan.job->training.global_batch);
  if (plan.job->workload.transformer) compare("seq_len", "sequences of", plan.job->training.seq_len);
  if (others.empty()) return {};
  return fmt::format("{} was trained {}: some samples come again and some do not come", found.path,
                     fmt::join(others, ", "));
}

}  // namespace orrery::exec
