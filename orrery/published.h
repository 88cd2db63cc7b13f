// Predictions judged by tables of published measurements: evidence/, handed on, and as JSON.
#pragma once

#include "base/json.h"
#include "evidence/collectives.h"
#include "evidence/report.h"
#include "evidence/validate.h"

namespace orrery {

// The JSON of `validate --published`:
//   rows: file, line, source, model, gpu, n_gpus, runtime, plan, predicted_s, measured_s, relative_error; or
//         `skipped`, why; rows of memory tables have predicted_bytes and measured_bytes instead, of tables of
//         throughput predicted_per_s and measured_per_s;
//   all, sources (by file): rows, skipped, mape, median_ape, max_ape, bias, within_10_percent, groups,
//         kendall_tau, regret {mean max};
//   memory {all, sources}: the same for memory, of rows of steps that print it and of tables of memory (kind:
//         what is counted); fits {ran, said_not_to_fit, out_of_memory, said_to_fit: the latter two of rows};
//   throughput {all, sources}.
Json to_json(const evidence::Published& published);

// The JSON of `validate --published-collectives`:
//   all, above_1_mib, sources (by file), machines (by GPU, nodes and collective): rows, skipped, mape,
//         median_ape, max_ape, bias, within_10_percent;
//   rows: file, line, source, collective, gpu, n_gpus, n_nodes, size_bytes, and either predicted_s,
//         measured_s, relative_error, algorithm, protocol or `skipped` (why; what is implausible in itself
//         has both).
Json to_json(const evidence::PublishedCollectives& published);

}  // namespace orrery
