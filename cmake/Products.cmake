# What users get: libtensorbox and libtensorbox_runtime with their CMake package, the command and the Python module.
# Command and module are small and use libtensorbox. Installed under a prefix (component Unspecified) or, as component
# `wheel`, below the folder of the Python package; both have bin/tbx, lib/libtensorbox.so.* and lib/tensorbox/ with the
# pinned libraries. The runtime has neither importer nor compiler: it runs packages.
function(tbx_product name)
  add_library(tensorbox::${name} ALIAS ${name})
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  install(TARGETS ${name} EXPORT tensorboxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                                  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
add_library(tensorbox SHARED cmake/empty.cpp)
target_link_libraries(tensorbox PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,tbx_driver,tbx_package>)
add_library(tensorbox_runtime SHARED cmake/empty.cpp)
target_link_libraries(tensorbox_runtime PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,tbx_package>)
target_link_options(tensorbox_runtime PRIVATE -Wl,--gc-sections)
foreach(library IN ITEMS tensorbox tensorbox_runtime)
  target_link_options(${library} PRIVATE -Wl,--no-undefined -Wl,--version-script=${exports})
  set_target_properties(${library} PROPERTIES LINK_DEPENDS ${exports} INSTALL_RPATH "$ORIGIN/tensorbox"
    VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endforeach()
# The same as one archive; its user links the libraries below it.
add_library(tensorbox_runtime_static STATIC cmake/empty.cpp $<TARGET_OBJECTS:tbx_package> $<TARGET_OBJECTS:tbx_runtime>
  $<TARGET_OBJECTS:tbx_extern_kernels> $<TARGET_OBJECTS:tbx_extern_kernels_small> $<TARGET_OBJECTS:tbx_device> $<TARGET_OBJECTS:tbx_ir> $<TARGET_OBJECTS:tbx_base> $<TARGET_OBJECTS:ducc0_fft>)
set_target_properties(tensorbox_runtime_static PROPERTIES OUTPUT_NAME tensorbox_runtime
                                                          ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(tbx_below fmt xxhash re2 png z)
foreach(image IN ITEMS JPEG:jpeg TIFF:tiff WEBP:webp OPENJPEG:openjp2)
  string(REPLACE ":" ";" image ${image})
  list(GET image 0 format)
  list(GET image 1 library)
  if(TARGET ${format}::${format} OR TARGET tbx::${format})
    list(APPEND tbx_below ${library})
  endif()
endforeach()
if(TBX_RUNTIME_LIBRARIES MATCHES dnnl)
  set(tbx_pinned $<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/tensorbox/libdnnl.so.3
                 $<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/tensorbox/libtbb.so.12)
elseif(TBX_WITH_ONEDNN)
  set(tbx_pinned dnnl tbb)
else()
  set(tbx_pinned tbb)
endif()
target_link_libraries(tensorbox_runtime_static INTERFACE "$<INSTALL_INTERFACE:${tbx_pinned};${tbx_below};pthread;dl>")

tbx_product(tensorbox)
tbx_product(tensorbox_runtime)
tbx_product(tensorbox_runtime_static)
install(DIRECTORY include/tensorbox DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${TBX_RUNTIME_LIBRARIES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tensorbox)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensorbox)
install(EXPORT tensorboxTargets NAMESPACE tensorbox:: DESTINATION ${package_dir})
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tensorboxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tensorboxConfig.cmake
     CONTENT "include(\${CMAKE_CURRENT_LIST_DIR}/tensorboxTargets.cmake)\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensorboxConfig.cmake ${PROJECT_BINARY_DIR}/tensorboxConfigVersion.cmake
        DESTINATION ${package_dir})
foreach(TBX_LIBRARY IN ITEMS tensorbox tensorbox_runtime)
  configure_file(cmake/library.pc.in ${PROJECT_BINARY_DIR}/${TBX_LIBRARY}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${TBX_LIBRARY}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# base is linked once more into the command: names of types, conversions of numbers, text for terminals.
file(GLOB_RECURSE tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/*.cpp)
add_executable(tbx ${tool_sources})
# As two translation units: CLI11 and nlohmann's templates take most of the time of each.
set_target_properties(tbx PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
target_link_libraries(tbx PRIVATE tensorbox tbx_base CLI11::CLI11 nlohmann_json::nlohmann_json PNG::PNG)
set_target_properties(tbx PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS tbx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(wheel COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS tbx RUNTIME DESTINATION tensorbox/bin ${wheel})
install(TARGETS tensorbox LIBRARY DESTINATION tensorbox/lib NAMELINK_SKIP ${wheel})
install(FILES ${TBX_RUNTIME_LIBRARIES} DESTINATION tensorbox/lib/tensorbox ${wheel})
add_library(tbx_no_jbig SHARED EXCLUDE_FROM_ALL cmake/no_jbig.cpp) # tools/finish_wheel.py takes it
set_target_properties(tbx_no_jbig PROPERTIES OUTPUT_NAME jbig SOVERSION 0 CXX_VISIBILITY_PRESET default
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/wheel-libraries)

if(TBX_WITH_PYTHON)
  set(python_out ${PROJECT_BINARY_DIR}/python)
  file(GLOB_RECURSE python_modules CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python
       ${PROJECT_SOURCE_DIR}/python/tensorbox/*.py ${PROJECT_SOURCE_DIR}/python/tensorbox/*.pyi
       ${PROJECT_SOURCE_DIR}/python/tensorbox/py.typed)
  set(python_copies "")
  foreach(file IN LISTS python_modules)
    add_custom_command(OUTPUT ${python_out}/${file} DEPENDS ${PROJECT_SOURCE_DIR}/python/${file}
      COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/python/${file} ${python_out}/${file} VERBATIM)
    list(APPEND python_copies ${python_out}/${file})
  endforeach()
  add_custom_target(tbx_python_modules ALL DEPENDS ${python_copies})

  file(GLOB_RECURSE binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/*.cpp)
  if(NOT SKBUILD) # pip names the Python that it builds for
    set(Python_EXECUTABLE ${TBX_DEPS}/venv/bin/python)
  endif()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
  # For every Python from 3.12 on where that one is at hand; for the Python at hand alone where it is older.
  nanobind_add_module(tbx_python NB_STATIC STABLE_ABI ${binding_sources})
  tbx_join_units(tbx_python ${binding_sources})
  target_link_libraries(tbx_python PRIVATE tensorbox tbx_options)
  set_target_properties(tbx_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${python_out}/tensorbox
                                              INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../../..")
  install(TARGETS tbx_python LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tensorbox/python/tensorbox)
  install(TARGETS tbx_python LIBRARY DESTINATION tensorbox ${wheel})
  set(python_files FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
  install(DIRECTORY python/tensorbox DESTINATION ${CMAKE_INSTALL_LIBDIR}/tensorbox/python ${python_files})
  install(DIRECTORY python/tensorbox DESTINATION . ${wheel} ${python_files})
  install(FILES python/tensorbox_command.py DESTINATION . ${wheel})
  add_dependencies(tbx_python tbx_python_modules)
endif()

# Every examples/<name>.cpp, built against the shared library as a user would.
file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
if(TBX_WITH_TESTS)
  foreach(source IN LISTS examples)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE tensorbox)
  endforeach()
endif()
