# tbx_stage_library(<folder> [PUBLIC libs...] [PRIVATE libs...]): static library tbx_<folder> of every *.cpp below
# <folder>. A CMakeLists.txt in the folder, if there is one, may add to the target.
option(TBX_LARGE_UNITS "Many files per translation unit: soonest built from nothing; OFF for editing file by file" ON)

function(tbx_stage_library folder)
  cmake_parse_arguments(arg "" "" "PUBLIC;PRIVATE" ${ARGN})
  set(target tbx_${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC tbx_options ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
    tbx_join_units(${target} ${sources})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tbx_options ${arg_PUBLIC} ${arg_PRIVATE})
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${PROJECT_SOURCE_DIR}/${folder})
  endif()
endfunction()

# large_units.py says which files can be joined.
set(tbx_large_units ${CMAKE_CURRENT_LIST_DIR}/large_units.py)
function(tbx_join_units target)
  if(NOT TBX_LARGE_UNITS)
    return()
  endif()
  execute_process(COMMAND ${TBX_DEPS}/venv/bin/python ${tbx_large_units} 1500 ${ARGN}
                  OUTPUT_VARIABLE units COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]*\n" units "${units}") # a list of lists, by the last character of each
  set(number 0)
  foreach(file IN LISTS units)
    string(REGEX MATCH "\n$" last "${file}")
    string(STRIP "${file}" file)
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${target}_${number})
    if(last)
      math(EXPR number "${number} + 1")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_RELOCATABLE ON)
  # Files of a unit look like headers to GCC, whose types nobody else should have.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tbx_large_units} ${ARGN})
endfunction()
