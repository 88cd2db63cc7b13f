# `cpack -G DEB` in the build folder: orrery, its executors, man pages and completions as a Debian package. What it
# depends on is read from the programs (dpkg-shlibdeps).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME orrery)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Orrery authors")
set(CPACK_PACKAGE_VENDOR "Orrery")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans the training of neural networks on clusters")
set(CPACK_PACKAGE_DESCRIPTION
  "Orrery searches for the best way to train a network on a cluster, simulates it, runs it over MPI or NCCL and learns from the difference.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
