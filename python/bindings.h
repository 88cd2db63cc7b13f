// What the files of the module `orrery._native` share. Answers cross as the text of their JSON, long columns
// of numbers as NumPy arrays; python/orrery makes them pleasant.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "orrery/json.h"
#include "orrery/orrery.h"

namespace orrery::python {

namespace py = pybind11;

// Calls the façade as every caller with threads does: with the server of simulations (a fork of this process
// has none yet), without the GIL.
template <typename Body>
auto without_gil(const Body& body) {
  const py::gil_scoped_release released;
  start();
  return body();
}

// What Python is told while something long runs, from the thread that called. Control-C ends it, too: what a
// signal's handler raises goes up through the library, which ends its children.
inline std::function<void(int, int)> progress_of(std::function<void(int, int)> told) {
  return [told = std::move(told)](int done, int total) {
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (told) told(done, total);
  };
}

using Texts = std::map<std::string, std::string>;  // options by their keys, values as a command line has them
Request request_of(const std::string& workload, const std::string& cluster, const Texts& options);

void define_plans(py::module_& module);
void define_timelines(py::module_& module);
void define_runs(py::module_& module);
void define_measurements(py::module_& module);

}  // namespace orrery::python
