# With CMAKE_UNITY_BUILD (presets release and asan: half the time of a build from nothing; `dev` is for changing things) a
# room's files are compiled a dozen at a time. These have helpers of one name with another file of their room, and are
# compiled alone. A new file that does not compile for such a name: rename the helper, or share it; a line here is the
# last resort.
set(ORRERY_ALONE)
# The folders that this configuration has (without tests, or without SimGrid, some are left out).
set(ORRERY_FOLDERS ${CMAKE_SOURCE_DIR})
set(below ${CMAKE_SOURCE_DIR})
while(below)
  list(POP_FRONT below folder)
  get_directory_property(folders DIRECTORY ${folder} SUBDIRECTORIES)
  list(APPEND ORRERY_FOLDERS ${folders})
  list(APPEND below ${folders})
endwhile()
foreach(file IN LISTS ORRERY_ALONE)
  get_filename_component(folder ${file} DIRECTORY)
  while(NOT folder STREQUAL "")  # in each folder whose targets may have it
    if(${CMAKE_SOURCE_DIR}/${folder} IN_LIST ORRERY_FOLDERS)
      set_source_files_properties(${CMAKE_SOURCE_DIR}/${file} DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}
                                  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    get_filename_component(folder "${folder}" DIRECTORY)
  endwhile()
endforeach()
