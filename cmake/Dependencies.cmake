# Every library that is not ours, as imported targets. TBX_DEPS names the folder made by deps/build.sh.
if(NOT TBX_DEPS)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/deps/build.sh OUTPUT_VARIABLE tbx_deps RESULT_VARIABLE tbx_deps_failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(tbx_deps_failed)
    message(FATAL_ERROR "the pinned dependencies could not be built; see the messages above, or run ./dev deps")
  endif()
  # Not cached: after a change of deps/ the next configuration finds the new folder.
  set(TBX_DEPS ${tbx_deps})
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/deps/python.txt ${PROJECT_SOURCE_DIR}/deps/sources.txt ${PROJECT_SOURCE_DIR}/deps/build.sh)
set(tbx_prefix ${TBX_DEPS}/prefix)
message(STATUS "dependencies: ${TBX_DEPS}")

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PNG REQUIRED)
find_package(Protobuf REQUIRED MODULE)
find_package(ONNX 1.23 REQUIRED CONFIG PATHS ${tbx_prefix} NO_DEFAULT_PATH)

function(tbx_imported_library name library header)  # a library without a CMake package
  find_library(TBX_${name}_LIBRARY ${library} REQUIRED)
  find_path(TBX_${name}_INCLUDE_DIR ${header} REQUIRED)
  add_library(tbx::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(tbx::${name} PROPERTIES IMPORTED_LOCATION ${TBX_${name}_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${TBX_${name}_INCLUDE_DIR})
endfunction()
tbx_imported_library(xxhash xxhash xxhash.h)
tbx_imported_library(re2 re2 re2/re2.h)

# The FFT of ducc0: templates, and one source file of its way to run on threads, which the definition leaves out.
add_library(ducc0_fft STATIC ${tbx_prefix}/include/ducc0/infra/threading.cc)
target_include_directories(ducc0_fft SYSTEM PUBLIC ${tbx_prefix}/include)
target_compile_definitions(ducc0_fft PUBLIC DUCC0_NO_LOWLEVEL_THREADING=1)
target_compile_options(ducc0_fft PRIVATE -w)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${tbx_prefix}/share/licenses/ducc0-fft.txt
        DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/tensorbox)

# oneDNN 3 and oneTBB. A system oneDNN counts only when it runs on TBB threads: one thread pool per process.
set(tbx_dnnl_from "")
if(TBX_WITH_ONEDNN)
  find_package(dnnl 3 QUIET CONFIG NO_SYSTEM_ENVIRONMENT_PATH)
  if(dnnl_FOUND AND (DNNL_CPU_THREADING_RUNTIME STREQUAL "TBB" OR DNNL_CPU_RUNTIME STREQUAL "TBB"))
    find_package(TBB REQUIRED CONFIG NO_SYSTEM_ENVIRONMENT_PATH)
    add_library(tbx::dnnl ALIAS DNNL::dnnl)
    set(tbx_dnnl_from "system ${dnnl_VERSION}")
  endif()
endif()
set(TBX_TBB_SOURCE "" CACHE PATH "Source folder of oneTBB 2021.13, built with the thread sanitizer (preset tsan)")
if(NOT tbx_dnnl_from)
  set(tbx_tbb_library ${tbx_prefix}/lib/libtbb.so.12)
  add_library(TBB::tbb SHARED IMPORTED GLOBAL)
  if(TBX_TBB_SOURCE)
    # The sanitizer knows nothing of the atomics inside a library that it did not compile. oneDNN uses this one as well:
    # it is found first, and a process loads one libtbb.so.12.
    include(ExternalProject)
    set(tbx_tbb_library ${PROJECT_BINARY_DIR}/tbb-install/lib/libtbb.so.12)
    set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR}/tbb-install/lib)
    ExternalProject_Add(tbx_tbb SOURCE_DIR ${TBX_TBB_SOURCE} BINARY_DIR ${PROJECT_BINARY_DIR}/tbb
      INSTALL_DIR ${PROJECT_BINARY_DIR}/tbb-install BUILD_BYPRODUCTS ${tbx_tbb_library}
      CMAKE_ARGS -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTBB_SANITIZE=thread -DTBB_TEST=OFF -DTBB_STRICT=OFF
                 -DTBBMALLOC_BUILD=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON -DCMAKE_INSTALL_LIBDIR=lib
                 -DCMAKE_INSTALL_PREFIX=<INSTALL_DIR>)
    add_dependencies(TBB::tbb tbx_tbb)
  endif()
  set_target_properties(TBB::tbb PROPERTIES IMPORTED_LOCATION ${tbx_tbb_library} IMPORTED_SONAME libtbb.so.12
                                            INTERFACE_INCLUDE_DIRECTORIES ${tbx_prefix}/include)
  if(TBX_WITH_ONEDNN)
    add_library(tbx::dnnl SHARED IMPORTED GLOBAL)
    set_target_properties(tbx::dnnl PROPERTIES
      IMPORTED_LOCATION ${tbx_prefix}/lib/libdnnl.so.3 IMPORTED_SONAME libdnnl.so.3
      INTERFACE_INCLUDE_DIRECTORIES ${tbx_prefix}/include
      IMPORTED_LINK_DEPENDENT_LIBRARIES TBB::tbb)
    set(tbx_dnnl_from "pinned, ${tbx_prefix}/lib")
    # Installed beside libtensorbox.
    set(TBX_RUNTIME_LIBRARIES ${tbx_prefix}/lib/libdnnl.so.3 ${tbx_prefix}/lib/libimf.so ${tbx_prefix}/lib/libintlc.so.5)
  else()
    add_library(tbx::dnnl INTERFACE IMPORTED GLOBAL)
    set(tbx_dnnl_from "off")
  endif()
  list(APPEND TBX_RUNTIME_LIBRARIES ${tbx_prefix}/lib/libtbb.so.12)
endif()
message(STATUS "oneDNN: ${tbx_dnnl_from}; CUDA headers: ${TBX_CUDA_INCLUDE_DIR}")
