// What jemalloc (heap's CMakeLists) is told at the start of a program: pages of 2 MiB, and what was given
// back is kept. Programs that plan and simulate touch hundreds of MiB, and each page costs a fault, which on
// virtual machines is dear.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "thp:always,metadata_thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1";
}
