// The native module: its exceptions, and what is known by name.
#include <filesystem>

#include "base/error.h"
#include "exec/launch/launcher.h"
#include "python/bindings.h"

namespace orrery::python {
namespace {

// Of the package, which gives them their places in Python's hierarchy and their documentation.
void translate(std::exception_ptr thrown) {
  const auto raise = [](const char* name, const char* text) {
    const py::object type = py::module_::import("orrery._errors").attr(name);
    PyErr_SetString(type.ptr(), text);
  };
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const UserError& error) {
    raise("UserError", error.what());
  } catch (const NoAnswer& error) {
    raise("NoAnswer", error.what());
  } catch (const InternalError& error) {
    raise("InternalError", error.what());
  }
}

py::list options_of() {
  Request request;
  py::list options;
  for (const Setting& setting : request_options(request)) {
    const Option& option = setting.option;
    py::dict record;
    record["key"] = option.key;
    record["unit"] = option.unit;
    record["help"] = option.help;
    record["fallback"] = option.fallback;
    record["range"] = option.range;
    record["group"] = option.group;
    record["switch"] = option.is_switch();
    record["positional"] = option.positional;
    record["varied"] = option.varied;
    options.append(record);
  }
  return options;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  py::register_exception_translator(&translate);
  module.def("start", [] { start(); });
  module.def("version", [] { return std::string(version()); });
  module.def("set_executor_folder", [](const std::string& folder) { set_executor_folder(folder); });
  module.def("request_options", &options_of);
  module.def("catalog", [] { return without_gil([] { return to_json(catalog()).dump(); }); });
  module.def("describe", [](const std::string& workload, int seq_len, const std::string& precision) {
    return without_gil([&] {
      return to_json(describe(load_workload(workload), seq_len, dtype_from_name(precision))).dump();
    });
  });
  module.def("check_device", [](const std::string& file) {
    return without_gil([&] { return to_json(check_device(file)).dump(); });
  });
  module.def("discover", [](const DiscoverRequest& request) {
    return without_gil([&] { return to_json(discover(request)).dump(); });
  });
  py::class_<DiscoverRequest>(module, "DiscoverRequest")
      .def(py::init<>())
      .def_readwrite("gpus", &DiscoverRequest::gpus)
      .def_readwrite("nccl_topology", &DiscoverRequest::nccl_topology)
      .def_readwrite("nvidia_smi", &DiscoverRequest::nvidia_smi)
      .def_readwrite("device", &DiscoverRequest::device)
      .def_readwrite("port_bytes_per_s", &DiscoverRequest::port_bytes_per_s)
      .def_readwrite("pcie_bytes_per_s", &DiscoverRequest::pcie_bytes_per_s);
  define_plans(module);
  define_timelines(module);
  define_runs(module);
  define_measurements(module);
}

}  // namespace orrery::python
